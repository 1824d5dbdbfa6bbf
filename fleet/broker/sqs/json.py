"""AWS JSON 1.0: a request's parameters in, a result or an error out. Types are checked as they are decoded."""

from __future__ import annotations

import re
import typing
from typing import Annotated, Any

import msgspec

from fleet.broker.sqs import errors
from fleet.broker.sqs.errors import SqsError
from fleet.broker.sqs.shapes import VERBS, Listing, Mapping, Scalar, Shape, Structure

CONTENT_TYPE = b"application/x-amz-json-1.0"
TARGET = "AmazonSQS."
_PYTHON: dict[str, Any] = {
    "string": str,
    "integer": Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)],
    "long": Annotated[int, msgspec.Meta(ge=-(2**63), lt=2**63)],
    "boolean": bool,
    "binary": bytes,  # msgspec reads and writes base64
}
_typed_dict: Any = typing.TypedDict
_encode = msgspec.json.Encoder().encode
_WRONG_TYPE = re.compile(r"Expected `(\w+)[^`]*`, got `(\w+)`")
_TOKENS = {"str": "STRING_VALUE", "int": "NUMBER_VALUE", "float": "NUMBER_VALUE", "bool": "TRUE_VALUE"}
_STARTS = {"object": "structure or map", "array": "list"}
_TYPES = {"str": "a String", "int": "an Integer", "bool": "a Boolean", "bytes": "a Blob"}


def _type_of(shape: Shape) -> Any:
    """Everything may be null, which says as much as leaving it out."""
    match shape:
        case Scalar():
            return _PYTHON[shape.kind]
        case Listing():
            return list[_type_of(shape.item)]  # type: ignore[misc]
        case Mapping():
            return dict[str, _type_of(shape.value) | None]  # type: ignore[misc]
        case Structure():
            members = {name: _type_of(member.shape) | None for name, member in shape.members.items()}
            return _typed_dict("Parameters", members, total=False)


_DECODERS = {name: msgspec.json.Decoder(_type_of(verb.takes)) for name, verb in VERBS.items()}


def verb_of(target: str) -> str:
    """Out of X-Amz-Target; SqsError if it is none of ours."""
    verb = target.removeprefix(TARGET)
    if verb == target or verb not in VERBS:
        raise errors.unknown_operation()
    return verb


def decode(verb: str, body: bytes) -> dict[str, Any]:
    try:
        params: dict[str, Any] = _DECODERS[verb].decode(body or b"{}")
    except msgspec.ValidationError as error:
        raise errors.serialization(_told(str(error))) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise errors.serialization("The request is not valid JSON.") from error
    return _without_nulls(params) if b"null" in body else params


def encode(result: dict[str, Any] | None) -> bytes:
    """A verb that gives nothing has an empty body, as at AWS."""
    return _encode(result) if result is not None else b""


def encode_error(error: SqsError) -> bytes:
    return _encode({"__type": error.type, "message": error.message})


def _told(problem: str) -> str:
    """A type that does not fit, as AWS says it; its own names for what is wrong with a value else."""
    found = _WRONG_TYPE.match(problem)
    if found is None:
        return problem
    expected, got = found.groups()
    if got in _STARTS:
        return f"Start of {_STARTS[got]} found where not expected."
    return f"{_TOKENS.get(got, got)} can not be converted to {_TYPES.get(expected, expected)}"


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value
