"""Filters: what passes, what is refused and where, and the language against an evaluator that is plainly right."""

from __future__ import annotations

import timeit
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.broker.errors import InvalidArgument
from fleet.broker.filter import MAX_FILTER_BYTES, compiled

ORDER = {"kind": "order", "region": "eu-west", "empty": ""}


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("", True),
        ("  \n", True),
        ("attributes:kind", True),
        ("attributes:empty", True),
        ("attributes:missing", False),
        ('attributes.kind = "order"', True),
        ('attributes.kind="order"', True),
        ('attributes.kind = "Order"', False),
        ('attributes.Kind = "order"', False),
        ('attributes.missing = ""', False),
        ('attributes.empty = ""', True),
        ('attributes.kind != "order"', False),
        ('attributes.kind != "invoice"', True),
        ('attributes.missing != "order"', True),
        ('hasPrefix(attributes.region, "eu-")', True),
        ('hasPrefix(attributes.region, "us-")', False),
        ('hasPrefix(attributes.missing, "")', False),
        ('hasPrefix(attributes.empty, "")', True),
        ("NOT attributes:missing", True),
        ("-attributes:missing", True),
        ("- attributes:kind", False),
        ("NOT -attributes:kind", True),
        ("NOT NOT NOT attributes:kind", False),
        ('NOT hasPrefix(attributes.region, "us-")', True),
        ("NOT (attributes:kind AND attributes:missing)", True),
        ("attributes:kind AND attributes:region AND NOT attributes:missing", True),
        ("attributes:missing OR attributes:other OR attributes:kind", True),
        ("NOT attributes:kind OR attributes:region", True),
        ("NOT attributes:kind AND attributes:region", False),
        ("(attributes:missing OR attributes:kind) AND attributes:region", True),
        ("attributes:missing OR (attributes:kind AND attributes:region)", True),
        ("((attributes:kind))", True),
        ("(attributes:missing)OR(attributes:kind)", True),
        ("attributes : kind", True),
        ('attributes . kind = "order"', True),
        ('attributes."kind" = "order"', True),
        ('attributes:"kind"', True),
    ],
)
def test_a_filter_passes_what_it_says(text: str, passes: bool) -> None:
    assert compiled(text)(ORDER) is passes


@pytest.mark.parametrize(
    ("text", "attributes"),
    [
        ("attributes:my-key", {"my-key": ""}),
        ("attributes:my_key", {"my_key": ""}),
        ("attributes:7", {"7": ""}),
        ("attributes:AND", {"AND": ""}),
        ("attributes:NOT", {"NOT": ""}),
        ("attributes:attributes", {"attributes": ""}),
        ("attributes:hasPrefix", {"hasPrefix": ""}),
        ('attributes:"iana.org/language_tag"', {"iana.org/language_tag": "en"}),
        ('attributes:"a b"', {"a b": ""}),
        ('attributes.a = "b AND (c"', {"a": "b AND (c"}),
        (r'attributes.a = "\"\\\n\t\r\a\b\f\v\'\?"', {"a": "\"\\\n\t\r\a\b\f\v'?"}),
        (r'attributes.a = "\u307F"', {"a": "み"}),
        (r'attributes.a = "\U0001F600"', {"a": "😀"}),
        (r'attributes.a = "\x41\101"', {"a": "AA"}),
        (r'attributes.a = "\uD7FF\uE000\U0010FFFF"', {"a": "\ud7ff\ue000\U0010ffff"}),
        ('attributes.a = "み"', {"a": "み"}),
        (r'attributes."\"" = ""', {'"': ""}),
    ],
)
def test_keys_and_texts_are_quoted_and_escaped(text: str, attributes: Mapping[str, str]) -> None:
    assert compiled(text)(attributes)
    assert not compiled(text)({})


@pytest.mark.parametrize(
    ("text", "expected", "character"),
    [
        ("kind", "attributes or hasPrefix", 1),
        ("attributes", '":" or "."', 11),
        ("attributes:", "the key of an attribute", 12),
        ("attributes.kind", '"=" or "!="', 16),
        ("attributes.kind = order", "a text in double quotes", 19),
        ("attributes.kind = 'order'", 'something other than "\'"', 19),
        ('attributes.kind = "order', "the closing quote", 19),
        ('attributes.kind == "order"', "a text in double quotes", 18),
        ('attributes.kind > "order"', "something other than '>'", 17),
        ("attributes:a.b", "AND, OR or the end", 13),
        ("attributes:a attributes:b", "AND, OR or the end", 14),
        ("attributes:a and attributes:b", "AND, OR or the end", 14),
        ("attributes:a AND", "attributes or hasPrefix", 17),
        ("AND attributes:a", "attributes or hasPrefix", 1),
        ("NOT", "attributes or hasPrefix", 4),
        ("(attributes:a", '")"', 14),
        ("attributes:a)", "AND, OR or the end", 13),
        ("()", "attributes or hasPrefix", 2),
        ('hasPrefix attributes.a, "b")', '"("', 11),
        ('hasPrefix(attributes:a, "b")', '"."', 21),
        ('hasPrefix(attributes.a "b")', '","', 24),
        ("hasPrefix(attributes.a, b)", "a text in double quotes", 25),
        ('hasSuffix(attributes.a, "b")', "attributes or hasPrefix", 1),
        (r'attributes.a = "\q"', r"an escape that exists, not \q", 17),
        (r'attributes.a = "x\u12"', r"an escape that exists, not \u", 18),
        (r'attributes.a = "\uD800"', r"a character that exists, not \uD800", 17),
        (r'attributes.a = "\uDFFF"', r"a character that exists, not \uDFFF", 17),
        (r'attributes.a = "\U00110000"', r"a character that exists, not \U00110000", 17),
        (
            "attributes:a AND attributes:b OR attributes:c",
            "AND again: AND and OR together need parentheses",
            31,
        ),
        (
            "attributes:a OR attributes:b AND attributes:c",
            "OR again: AND and OR together need parentheses",
            30,
        ),
    ],
)
def test_what_is_no_filter_is_refused_with_its_place(text: str, expected: str, character: int) -> None:
    with pytest.raises(InvalidArgument) as refused:
        compiled(text)
    assert refused.value.code == 3
    assert refused.value.message == f"filter: expected {expected} at character {character} of {text!r}"


def test_a_filter_has_256_bytes_at_most() -> None:
    text = 'attributes.a = "{}"'
    longest = text.format("é" * ((MAX_FILTER_BYTES - len(text) + 2) // 2))
    assert len(longest.encode()) in (MAX_FILTER_BYTES - 1, MAX_FILTER_BYTES)
    compiled(longest)
    with pytest.raises(InvalidArgument, match="filter has 257 bytes, the limit is 256"):
        compiled("attributes:a".ljust(MAX_FILTER_BYTES + 1))


@pytest.mark.parametrize(("before", "after"), [("(", ")"), ("-(", ")"), ("-", "")])
def test_a_filter_as_deep_as_its_length_allows_is_read(before: str, after: str) -> None:
    depth = (MAX_FILTER_BYTES - len("attributes:a")) // len(before + after)
    test = compiled(before * depth + "attributes:a" + after * depth)
    assert test({"a": ""}) is ("-" not in before or depth % 2 == 0)


# Against an evaluator that is plainly right ---------------------------------------------------------


@dataclass(frozen=True)
class Test:
    """One test, as text, and what it should say."""

    __test__ = False
    verb: str
    key: str
    value: str

    def text(self) -> str:
        key = self.key if self.key.isalnum() and self.key.isascii() else _quoted(self.key)
        match self.verb:
            case "has":
                return f"attributes:{key}"
            case "begins":
                return f"hasPrefix(attributes.{key}, {_quoted(self.value)})"
            case sign:
                return f"attributes.{key} {sign} {_quoted(self.value)}"

    def holds(self, attributes: Mapping[str, str]) -> bool:
        if self.key not in attributes:
            return self.verb == "!="
        there = attributes[self.key]
        return {
            "has": True,
            "begins": there.startswith(self.value),
            "=": there == self.value,
            "!=": there != self.value,
        }[self.verb]


@dataclass(frozen=True)
class Not:
    of: Term
    sign: str

    def text(self) -> str:
        return f"{self.sign}{_in_parentheses(self.of)}"

    def holds(self, attributes: Mapping[str, str]) -> bool:
        return not self.of.holds(attributes)


@dataclass(frozen=True)
class Joined:
    word: str
    terms: tuple[Term, ...]

    def text(self) -> str:
        return f" {self.word} ".join(_in_parentheses(term) for term in self.terms)

    def holds(self, attributes: Mapping[str, str]) -> bool:
        each = [term.holds(attributes) for term in self.terms]
        return False not in each if self.word == "AND" else True in each


Term = Test | Not | Joined


def _in_parentheses(term: Term) -> str:
    return f"({term.text()})" if isinstance(term, Joined) else term.text()


def _quoted(text: str) -> str:
    return '"' + "".join(_escaped(character) for character in text) + '"'


def _escaped(character: str) -> str:
    return f"\\U{ord(character):08x}" if character in '"\\' or not character.isprintable() else character


_TEXTS = st.sampled_from(["", "a", "ab", "b", "a b", '"', "\\", "é", "\n"])
_KEYS = st.sampled_from(["a", "b", "c d", "AND", '"'])
_TESTS: st.SearchStrategy[Term] = st.builds(Test, st.sampled_from(["has", "begins", "=", "!="]), _KEYS, _TEXTS)


def _larger(terms: st.SearchStrategy[Term]) -> st.SearchStrategy[Term]:
    several = st.lists(terms, min_size=2, max_size=3).map(tuple)
    return st.builds(Not, terms, st.sampled_from(["NOT ", "-"])) | st.builds(
        Joined, st.sampled_from(["AND", "OR"]), several
    )


@given(
    st.recursive(_TESTS, _larger, max_leaves=6).filter(lambda term: len(term.text().encode()) <= MAX_FILTER_BYTES),
    st.lists(st.dictionaries(_KEYS, _TEXTS), min_size=1, max_size=5),
)
def test_a_filter_says_what_a_plain_evaluator_says(term: Term, messages: list[dict[str, str]]) -> None:
    test = compiled(term.text())
    assert [test(attributes) for attributes in messages] == [term.holds(attributes) for attributes in messages]


_PIECES = ["attributes", ":", ".", "a", '"b"', "=", "!=", "hasPrefix", "(", ")", ",", "AND", "OR", "NOT", "-", " ", '"']


@given(st.lists(st.sampled_from(_PIECES), max_size=20).map("".join) | st.text(max_size=40))
def test_any_text_is_a_filter_or_an_invalid_argument(text: str) -> None:
    try:
        test = compiled(text)
    except InvalidArgument:
        return
    assert test({}) in (True, False)


def test_a_filter_costs_next_to_nothing() -> None:
    """Of five tests: 0.6 µs, measured. Compared with reading a message, as machines are shared and differ."""
    test = compiled(
        'NOT attributes:x AND (attributes.kind = "a" OR attributes.kind = "b" OR hasPrefix(attributes.region, "eu-"))'
    )
    assert test(ORDER)
    yardstick = min(timeit.repeat(lambda: ORDER | {"a": "b"}, number=2000, repeat=7))
    assert min(timeit.repeat(lambda: test(ORDER), number=2000, repeat=7)) < 20 * yardstick
