"""Filters on attributes, in the language of Pub/Sub. Parsed once into a function; nothing is evaluated as Python.

    filter     = condition { AND condition } | condition { OR condition }      (both: with parentheses)
    condition  = [ NOT | - ] ( "(" filter ")" | test )
    test       = attributes : key | attributes . key = "text" | attributes . key != "text"
               | hasPrefix ( attributes . key , "text" )
    key        = letters, digits, _ and - | "text"

`!=` is NOT of `=`: it also holds where the attribute is missing. An empty filter holds for every message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NoReturn

from fleet.broker.errors import InvalidArgument

MAX_FILTER_BYTES = 256

Attributes = Mapping[str, str]
Test = Callable[[Attributes], bool]

_TOKEN = re.compile(
    r"""\s*(?:
        (?P<text>"(?:[^"\\]|\\.)*")
      | (?P<word>[A-Za-z0-9_][A-Za-z0-9_-]*)
      | (?P<sign>!=|[-=:.,()])
      | (?P<end>\Z)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(
    r"\\(?:x(?P<x>[0-9A-Fa-f]{2})|u(?P<u>[0-9A-Fa-f]{4})|U(?P<U>[0-9A-Fa-f]{8})|(?P<o>[0-7]{3})|(?P<one>.))", re.DOTALL
)
_SINGLE = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    '"': '"', "'": "'", "\\": "\\", "?": "?",
}  # fmt: skip


def compiled(text: str) -> Test:
    """A function that tells whether a message with these attributes passes; InvalidArgument names where it is wrong."""
    size = len(text.encode(errors="surrogatepass"))
    if size > MAX_FILTER_BYTES:
        raise InvalidArgument(f"filter has {size} bytes, the limit is {MAX_FILTER_BYTES}")
    if not text.strip():
        return _always
    parser = _Parser(text)
    test = parser.filter()
    if parser.kind != "end":
        parser.fail("AND, OR or the end")
    return test


class _Parser:
    """One token ahead: `kind`, `token`, and `at`, where it begins."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._next = 0
        self._advance()

    def filter(self) -> Test:
        tests = [self._condition()]
        joint = self.token if self._is_word("AND", "OR") else ""
        while self._is_word("AND", "OR"):
            if self.token != joint:
                self.fail(f"{joint} again: AND and OR together need parentheses")
            self._advance()
            tests.append(self._condition())
        if len(tests) == 1:
            return tests[0]
        return _all(tests) if joint == "AND" else _any(tests)

    def _condition(self) -> Test:
        negated = False
        while self._is_word("NOT") or self._is_sign("-"):
            negated = not negated
            self._advance()
        if self._is_sign("("):
            self._advance()
            test = self.filter()
            self._take(")")
        elif self._is_word("hasPrefix"):
            test = self._has_prefix()
        else:
            test = self._comparison()
        return _not(test) if negated else test

    def _comparison(self) -> Test:
        self._take_attributes()
        if self._is_sign(":"):
            self._advance()
            return _has(self._key())
        if not self._is_sign("."):
            self.fail('":" or "."')
        self._advance()
        key = self._key()
        if not self._is_sign("=", "!="):
            self.fail('"=" or "!="')
        sign = self.token
        self._advance()
        test = _equals(key, self._quoted())
        return test if sign == "=" else _not(test)

    def _has_prefix(self) -> Test:
        self._advance()
        self._take("(")
        self._take_attributes()
        self._take(".")
        key = self._key()
        self._take(",")
        prefix = self._quoted()
        self._take(")")
        return _begins(key, prefix)

    def _key(self) -> str:
        if self.kind == "word":
            key = self.token
            self._advance()
            return key
        if self.kind != "text":
            self.fail("the key of an attribute")
        return self._quoted()

    def _quoted(self) -> str:
        if self.kind != "text":
            self.fail("a text in double quotes")
        start = self.at + 1
        text = _ESCAPE.sub(lambda escape: self._unescaped(escape, start), self.token[1:-1])
        self._advance()
        return text

    def _unescaped(self, escape: re.Match[str], start: int) -> str:
        if escape["one"] is not None:
            if escape["one"] not in _SINGLE:
                self.fail(f"an escape that exists, not {escape[0]}", at=start + escape.start())
            return _SINGLE[escape["one"]]
        code = int(escape["o"], 8) if escape["o"] else int(escape["x"] or escape["u"] or escape["U"], 16)
        if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
            self.fail(f"a character that exists, not {escape[0]}", at=start + escape.start())
        return chr(code)

    # Tokens -----------------------------------------------------------------------------------------

    def _advance(self) -> None:
        match = _TOKEN.match(self._text, self._next)
        if match is None or match.lastgroup is None:
            rest = self._text[self._next :].lstrip()
            self.at = len(self._text) - len(rest)
            self.fail("the closing quote" if rest[0] == '"' else f"something other than {rest[0]!r}")
        self.kind, self.token = match.lastgroup, match[match.lastgroup]
        self.at, self._next = match.start(match.lastgroup), match.end()

    def _is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.token in words

    def _is_sign(self, *signs: str) -> bool:
        return self.kind == "sign" and self.token in signs

    def _take(self, sign: str) -> None:
        if not self._is_sign(sign):
            self.fail(f'"{sign}"')
        self._advance()

    def _take_attributes(self) -> None:
        if not self._is_word("attributes"):
            self.fail("attributes or hasPrefix")
        self._advance()

    def fail(self, expected: str, *, at: int | None = None) -> NoReturn:
        place = (self.at if at is None else at) + 1
        raise InvalidArgument(f"filter: expected {expected} at character {place} of {self._text!r}")


# What a filter is made of ----------------------------------------------------------------------------


def _always(attributes: Attributes) -> bool:  # noqa: ARG001  every test has this form
    return True


def _has(key: str) -> Test:
    return lambda attributes: key in attributes


def _equals(key: str, value: str) -> Test:
    # Where the attribute is missing `get` answers None, which equals no text.
    return lambda attributes: attributes.get(key) == value


def _begins(key: str, prefix: str) -> Test:
    return lambda attributes: (value := attributes.get(key)) is not None and value.startswith(prefix)


def _not(test: Test) -> Test:
    return lambda attributes: not test(attributes)


# Loops, and not all() and any(): a generator would cost more than what it asks.
def _all(tests: list[Test]) -> Test:
    def test(attributes: Attributes) -> bool:
        for one in tests:  # noqa: SIM110
            if not one(attributes):
                return False
        return True

    return test


def _any(tests: list[Test]) -> Test:
    def test(attributes: Attributes) -> bool:
        for one in tests:  # noqa: SIM110
            if one(attributes):
                return True
        return False

    return test
