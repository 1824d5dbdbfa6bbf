"""The Query protocol out: a result or an error as the XML that AWS writes. Nothing here reads XML."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Any

from fleet.broker.sqs.errors import SqsError
from fleet.broker.sqs.shapes import VERBS, Listing, Mapping, Scalar, Shape, Structure

CONTENT_TYPE = b"text/xml"
NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
UNKNOWN_OPERATION = b"<UnknownOperationException/>\n"
_HEAD = '<?xml version="1.0"?>'
# A carriage return would be read as a line feed; a character that XML has not would make the whole answer unreadable.
_SPECIAL = re.compile('[&<>"\r\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]')
_ESCAPED = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\r": "&#xD;"}


def encode(verb: str, result: dict[str, Any] | None, request_id: str) -> bytes:
    shape = VERBS[verb].gives
    parts = [f'{_HEAD}<{verb}Response xmlns="{NAMESPACE}">']
    if shape is not None:
        inside: list[str] = []
        _write_members(shape, result or {}, inside)
        parts += [f"<{verb}Result>", *inside, f"</{verb}Result>"] if inside else [f"<{verb}Result/>"]
    parts.append(f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata></{verb}Response>")
    return "".join(parts).encode()


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


def _write_members(shape: Structure, value: dict[str, Any], out: list[str]) -> None:
    for name, member in shape.members.items():
        one = value.get(name)
        if one is not None:
            _write(member.wire, member.shape, one, out)


def _write(wire: str, shape: Shape, value: Any, out: list[str]) -> None:
    """Lists and maps are flattened: an element for each item, none around them."""
    match shape:
        case Scalar():
            out.append(f"<{wire}>{_scalar(shape, value)}</{wire}>")
        case Structure():
            out.append(f"<{wire}>")
            _write_members(shape, value, out)
            out.append(f"</{wire}>")
        case Listing():
            for item in value:
                _write(wire, shape.item, item, out)
        case Mapping():
            for key, item in value.items():
                out.append(f"<{wire}><{shape.key_wire}>{escaped(key)}</{shape.key_wire}>")
                _write(shape.value_wire, shape.value, item, out)
                out.append(f"</{wire}>")


def _scalar(shape: Scalar, value: Any) -> str:
    if shape.kind == "string":
        return escaped(value)
    if shape.kind == "boolean":
        return "true" if value else "false"
    return b64encode(value).decode() if shape.kind == "binary" else str(value)
