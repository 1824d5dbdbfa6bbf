"""The Query protocol out: a result or an error as the XML that AWS writes. Nothing here reads XML."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from fleet.broker.sqs.errors import SqsError
from fleet.broker.sqs.shapes import VERBS, Listing, Mapping, Scalar, Shape, Structure

CONTENT_TYPE = b"text/xml"
NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
UNKNOWN_OPERATION = b"<UnknownOperationException/>\n"
_HEAD = '<?xml version="1.0"?>'
# A carriage return would be read as a line feed; a character that XML has not would make the whole answer unreadable.
_SPECIAL = re.compile('[&<>"\r\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]')
Write = Callable[[Any, list[str]], None]
_ESCAPED = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#xD;"}


def encode(verb: str, result: dict[str, Any] | None, request_id: str) -> bytes:
    head, write, tail = _ENVELOPES[verb]
    out = [head]
    if write is not None:
        inside: list[str] = []
        write(result or {}, inside)
        out += [f"<{verb}Result>", *inside, f"</{verb}Result>"] if inside else [f"<{verb}Result/>"]
    out.append(f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>{tail}")
    return "".join(out).encode()


def encode_error(error: SqsError, request_id: str) -> bytes:
    return (
        f'{_HEAD}<ErrorResponse xmlns="{NAMESPACE}"><Error><Type>{error.fault}</Type>'
        f"<Code>{escaped(error.code)}</Code><Message>{escaped(error.query_message)}</Message><Detail/></Error>"
        f"<RequestId>{request_id}</RequestId></ErrorResponse>"
    ).encode()


def escaped(text: str) -> str:
    return _SPECIAL.sub(_escape, text) if _SPECIAL.search(text) else text


def _escape(found: re.Match[str]) -> str:
    return _ESCAPED.get(found[0], "\ufffd")


# The table of shapes, made into functions once: walking it for each answer took twice as long. ---------


def _members(shape: Structure) -> Write:
    members = [(name, _element(member.wire, member.shape)) for name, member in shape.members.items()]

    def write(value: dict[str, Any], out: list[str]) -> None:
        for name, write_member in members:
            one = value.get(name)
            if one is not None:
                write_member(one, out)

    return write


def _element(wire: str, shape: Shape) -> Write:
    """Lists and maps are flattened: an element for each item, none around them."""
    begin, end = f"<{wire}>", f"</{wire}>"
    match shape:
        case Scalar():
            text = _TEXTS[shape.kind]

            def write(value: Any, out: list[str]) -> None:
                out.append(f"{begin}{text(value)}{end}")

        case Structure():
            write_members = _members(shape)

            def write(value: Any, out: list[str]) -> None:
                out.append(begin)
                write_members(value, out)
                out.append(end)

        case Listing():
            write_item = _element(wire, shape.item)

            def write(value: Any, out: list[str]) -> None:
                for item in value:
                    write_item(item, out)

        case Mapping():
            write_value = _element(shape.value_wire, shape.value)
            before, after = f"{begin}<{shape.key_wire}>", f"</{shape.key_wire}>"

            def write(value: Any, out: list[str]) -> None:
                for key, item in value.items():
                    out.append(f"{before}{escaped(key)}{after}")
                    write_value(item, out)
                    out.append(end)

    return write


_TEXTS: dict[str, Callable[[Any], str]] = {
    "string": escaped,
    "boolean": lambda value: "true" if value else "false",
    "binary": lambda value: b64encode(value).decode(),
    "integer": str,
    "long": str,
}
_ENVELOPES: dict[str, tuple[str, Write | None, str]] = {
    verb.name: (
        f'{_HEAD}<{verb.name}Response xmlns="{NAMESPACE}">',
        _members(verb.gives) if verb.gives is not None else None,
        f"</{verb.name}Response>",
    )
    for verb in VERBS.values()
}
