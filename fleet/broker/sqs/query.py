"""The Query protocol in: a form, or the query of a URL, becomes the parameters that AWS JSON would bring."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote_to_bytes

from fleet.broker.sqs import errors
from fleet.broker.sqs.shapes import VERBS, Listing, Mapping, Member, Scalar, Shape, Structure

FORM = "application/x-www-form-urlencoded"
_INTEGERS = {"integer": 2**31, "long": 2**63}
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
    by_name = VERBS[verb].takes.by_name
    params: dict[str, Any] = {}
    gathered: dict[str, Member] = {}
    for name, text in fields.items():
        first, *rest = name.split(".")
        found = by_name.get(first)
        if found is None:
            continue
        own, member = found
        if isinstance(member.shape, Scalar):
            if not rest:
                params[own] = _scalar(member.shape, text, name)
            continue
        # Older clients send a list of one without a number.
        _put(member.shape, params, own, rest or ["1"], text, name)
        gathered[own] = member
    for own, member in gathered.items():
        params[own] = _settled(member.shape, params[own], member.wire)
    return params


# A list or map is gathered as a dictionary by number first: its fields may come in any order. ---------


def _put(shape: Shape, into: dict[Any, Any], key: Any, path: list[str], text: str, name: str) -> None:
    match shape:
        case Scalar():
            if path:
                raise errors.serialization(f"{_shown(name)} is a value and has no parts.")
            into[key] = _scalar(shape, text, name)
        case Structure():
            found = shape.by_name.get(path[0]) if path else None
            if found is not None:
                own, member = found
                _put(member.shape, into.setdefault(key, {}), own, path[1:], text, name)
        case Listing():
            items = into.setdefault(key, {})
            _put(shape.item, items, _number(path, name), path[1:], text, name)
        case Mapping():
            items = into.setdefault(key, {})
            item = items.setdefault(_number(path, name), {})
            part = path[1] if len(path) > 1 else ""
            if part == shape.key_wire:
                _put(_KEY, item, "key", path[2:], text, name)
            elif part == shape.value_wire:
                _put(shape.value, item, "value", path[2:], text, name)


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
        raise errors.serialization(f"{_shown(name)} needs a number: .1, .2 and so on.")
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
        raise errors.serialization(f"{_shown(name)} is not base64.") from error


def _shown(name: str) -> str:
    return name if len(name) <= 200 else f"{name[:200]}…"
