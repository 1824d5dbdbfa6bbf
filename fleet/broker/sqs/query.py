"""The Query protocol in: a form, or the query of a URL, becomes the parameters that AWS JSON would bring."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from functools import lru_cache
from typing import Any
from urllib.parse import unquote_to_bytes

from fleet.broker.sqs import errors
from fleet.broker.sqs.shapes import VERBS, Listing, Mapping, Scalar, Shape, Structure

FORM = "application/x-www-form-urlencoded"
_INTEGERS = {"integer": 2**31, "long": 2**63}
_LONGEST_NAME = 200
"""Names are remembered; the longest that means something is much shorter."""
_MOST_FIELDS = 2000
"""Ten messages with ten attributes of three fields are 350."""


def pairs(form: bytes) -> dict[str, str]:
    """The fields by name, of which the last of a name counts. SqsError for what is no text."""
    if form.count(b"&") > _MOST_FIELDS:
        raise errors.serialization(f"The request has more than {_MOST_FIELDS} parameters.")
    try:
        return dict(_each(form))
    except UnicodeDecodeError as error:
        raise errors.serialization("The request is not valid UTF-8.") from error


def _each(form: bytes) -> Iterator[tuple[str, str]]:
    for one in form.split(b"&"):
        if one:
            name, _, value = one.partition(b"=")
            yield _text(name), _text(value)


def _text(raw: bytes) -> str:
    if b"+" in raw:
        raw = raw.replace(b"+", b" ")
    return (unquote_to_bytes(raw) if b"%" in raw else raw).decode()


def decode(verb: str, fields: dict[str, str]) -> dict[str, Any]:
    """What `fields` say to this verb. What it does not know (Action, Version, a signature) is left out, as at AWS."""
    params: dict[str, Any] = {}
    gathered: set[str] = set()
    for name, text in fields.items():
        place = _place(verb, name) if len(name) <= _LONGEST_NAME else None
        if place is None:
            continue
        first, between, last, scalar = place
        value = text if scalar.kind == "string" else _scalar(scalar, text, name)
        if last is None:
            params[first] = value
            continue
        gathered.add(first)
        into = params.setdefault(first, {})
        for key in between:
            into = into.setdefault(key, {})
        into[last] = value
    members = VERBS[verb].takes.members
    for own in gathered:
        params[own] = _settled(members[own].shape, params[own], members[own].wire)
    return params


# Lists and maps are gathered by number first, for their fields may come in any order. ----------------

Key = str | int
Place = tuple[str, tuple[Key, ...], Key | None, Scalar]
"""The parameter, the keys below it, the last of them (None: it is the value), and what the value is."""


@lru_cache(maxsize=4096)
def _place(verb: str, name: str) -> Place | None:
    """Where a field goes; None: this verb has no such field. The same names come with every request."""
    first, *path = name.split(".")
    found = VERBS[verb].takes.by_name.get(first)
    if found is None:
        return None
    own, member = found
    if not path and not isinstance(member.shape, Scalar):
        path = ["1"]  # older clients send a list of one without a number
    keys: list[Key] = [own]
    scalar = _follow(member.shape, path, keys, name)
    if scalar is None:
        return None
    return own, tuple(keys[1:-1]), keys[-1] if len(keys) > 1 else None, scalar


def _follow(shape: Shape, path: list[str], keys: list[Key], name: str) -> Scalar | None:
    """Adds the keys that `path` leads along, down to the value at its end."""
    match shape:
        case Scalar():
            if path and len(keys) > 1:
                raise errors.serialization(f"{name} is a value and has no parts.")
            return None if path else shape
        case Structure():
            found = shape.by_name.get(path[0]) if path else None
            if found is None:
                return None
            keys.append(found[0])
            return _follow(found[1].shape, path[1:], keys, name)
        case Listing():
            keys.append(_number(path, name))
            return _follow(shape.item, path[1:], keys, name)
        case Mapping():
            keys.append(_number(path, name))
            part = path[1] if len(path) > 1 else ""
            if part not in (shape.key_wire, shape.value_wire):
                raise errors.serialization(f"{name} needs .{shape.key_wire} or .{shape.value_wire} after its number.")
            keys.append("key" if part == shape.key_wire else "value")
            return _follow(_KEY if part == shape.key_wire else shape.value, path[2:], keys, name)


_KEY = Scalar("string")


def _settled(shape: Shape, value: Any, wire: str) -> Any:
    """`value` with its lists and maps in their order, out of the numbers that they were gathered by."""
    match shape:
        case Scalar():
            return value
        case Structure():
            return {
                own: _settled(one.shape, value[own], one.wire) for own, one in shape.members.items() if own in value
            }
        case Listing():
            return [_settled(shape.item, value[number], f"{wire}.{number}") for number in sorted(value)]
        case Mapping():
            found: dict[str, Any] = {}
            for number in sorted(value):
                item = value[number]
                if not item.get("key"):
                    raise errors.missing_parameter(f"{wire}.{number}.{shape.key_wire}")
                if "value" not in item:
                    raise errors.missing_parameter(f"{wire}.{number}.{shape.value_wire}")
                found[item["key"]] = _settled(shape.value, item["value"], f"{wire}.{number}.{shape.value_wire}")
            return found


def _number(path: list[str], name: str) -> int:
    part = path[0] if path else ""
    if not (part.isascii() and part.isdigit() and len(part) <= 6):
        raise errors.serialization(f"{name} needs a number: .1, .2 and so on.")
    return int(part)


def _scalar(shape: Scalar, text: str, name: str) -> Any:
    if shape.kind == "string":
        return text
    if shape.kind in _INTEGERS:
        limit = _INTEGERS[shape.kind]
        digits = text.removeprefix("-")
        if digits.isascii() and digits.isdigit() and len(digits) <= 19 and -limit <= int(text) < limit:
            return int(text)
        raise errors.invalid_value(text, name, "Must be an integer.")
    if shape.kind == "boolean":
        return text.lower() == "true"
    try:
        # A blank is a plus that a client did not escape.
        return b64decode(text.replace(" ", "+").encode(), validate=True)
    except ValueError as error:
        raise errors.serialization(f"{name} is not base64.") from error
