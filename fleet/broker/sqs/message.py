"""A message as a sender may write it: what its body, attributes and ids must be. Pure; needs the queue's attributes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec

from fleet.broker.sqs import errors, md5, ranges
from fleet.broker.sqs.attributes import MOST_BYTES, Attributes
from fleet.broker.sqs.errors import SqsError

MOST_ATTRIBUTES = 10
_CONTROLS = bytes(code for code in range(32) if code not in b"\t\n\r")
_NO_CHARACTERS = ("\ufffe".encode(), "\uffff".encode())
_ID = re.compile(r"[0-9a-zA-Z!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]{1,128}\Z")
_ATTRIBUTE_NAME = re.compile(r"[\u00c0-\u017fA-Za-z0-9_.\-]*\Z")
_RESERVED = re.compile(r"(?:aws\.|amazon\.|\.)|.*(?:\.\Z|\.\.)", re.IGNORECASE)
_TYPE = re.compile(r"(String|Number|Binary)(?:\..*)?\Z", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(?:[0-9]{1,38}(?:\.[0-9]{0,38})?|\.[0-9]{1,38})(?:[eE][+-]?[0-9]{1,3})?\Z")
TRACE = "AWSTraceHeader"


class Sent(msgspec.Struct, frozen=True):
    """A message that may be sent, with what its sender is to hear."""

    body: bytes
    attributes: dict[str, dict[str, Any]]
    trace: str
    group: str
    dedup_id: str
    """Content-based deduplication has put the digest of the body here."""
    delay_s: int | None
    """None: the queue's own."""
    size_bytes: int

    def receipt(self) -> dict[str, Any]:
        """What of the result its sender can check. MessageId and SequenceNumber come from the queue."""
        found = {"MD5OfMessageBody": md5.of_body(self.body)}
        if self.attributes:
            found["MD5OfMessageAttributes"] = md5.of_attributes(self.attributes)
        if self.trace:
            system = {TRACE: {"DataType": "String", "StringValue": self.trace}}
            found["MD5OfMessageSystemAttributes"] = md5.of_system_attributes(system)
        return found


def check(params: Mapping[str, Any], queue: Attributes, *, in_batch: bool = False) -> Sent:
    """SqsError unless this queue takes it. Sizes of a batch as a whole are `batch.check_sizes`."""
    text = params.get("MessageBody")
    if not text:
        raise errors.missing_parameter("MessageBody")
    body = _body(text)
    attributes: dict[str, dict[str, Any]] = params.get("MessageAttributes") or {}
    size = len(body)
    if attributes:
        check_attributes(attributes)
        size += attributes_bytes(attributes)
    if size > queue.message_bytes:
        raise _too_long(queue.message_bytes, in_batch=in_batch)
    delay = ranges.delay_s(params, fifo=queue.fifo) if "DelaySeconds" in params else None
    group, dedup_id = _ids(params, queue, body)
    system = params.get("MessageSystemAttributes")
    return Sent(body, attributes, _trace(system) if system else "", group, dedup_id, delay, size)


def size_bytes(params: Mapping[str, Any]) -> int:
    """Of an entry that is not checked yet: what it adds to its batch."""
    size = len(params.get("MessageBody", "").encode("utf-8", "surrogatepass"))
    return size + attributes_bytes(params.get("MessageAttributes") or {})


def attributes_bytes(attributes: Mapping[str, Mapping[str, Any]]) -> int:
    """Name, type and value of each. What a system attribute weighs does not count."""
    return sum(
        len(name.encode("utf-8", "surrogatepass")) + sum(_bytes(part) for part in value.values())
        for name, value in attributes.items()
    )


# Group and deduplication ---------------------------------------------------------------------------


def check_fifo_ids(params: Mapping[str, Any], queue: Attributes, *, single: bool = True) -> None:
    """SqsError where a FIFO queue misses one. A batch fails whole over it, by another name of the error."""
    if params.get("MessageGroupId") is None:
        missing = errors.missing_parameter("MessageGroupId")
        raise missing if single else errors.invalid_parameter(missing.message)
    if params.get("MessageDeduplicationId") is None and not queue.content_dedup:
        raise errors.invalid_parameter(
            "The queue should either have ContentBasedDeduplication enabled or"
            " MessageDeduplicationId provided explicitly"
        )


def _ids(params: Mapping[str, Any], queue: Attributes, body: bytes) -> tuple[str, str]:
    group, dedup_id = params.get("MessageGroupId"), params.get("MessageDeduplicationId")
    if queue.fifo:
        check_fifo_ids(params, queue)
    elif dedup_id is not None:
        raise errors.not_for_this_type(dedup_id, "MessageDeduplicationId")
    if group is not None:
        _check_id(group, "MessageGroupId")
    if dedup_id is not None:
        _check_id(dedup_id, "MessageDeduplicationId")
    elif queue.fifo:
        dedup_id = sha256(body).hexdigest()
    return group or "", dedup_id or ""


def _check_id(text: str, parameter: str) -> None:
    if _ID.match(text) is None:
        reason = f"{parameter} can only include alphanumeric and punctuation characters. 1 to 128 in length."
        raise errors.invalid_value(text, parameter, reason)


# Body and attributes -------------------------------------------------------------------------------


def check_attributes(attributes: Mapping[str, Mapping[str, Any]]) -> None:
    """SqsError for the first that cannot be."""
    if len(attributes) > MOST_ATTRIBUTES:
        raise errors.invalid_parameter(
            f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum [{MOST_ATTRIBUTES}]."
        )
    for name, value in attributes.items():
        _check_name(name)
        _check_value(name, value, _type(name, value))


def _check_name(name: str) -> None:
    if not name:
        raise errors.invalid_parameter("The request must contain non-empty message (user) attribute names.")
    if len(name.encode("utf-8", "surrogatepass")) > 256:
        raise errors.invalid_parameter("Message (user) attribute names must be shorter than 256 Bytes")
    if _ATTRIBUTE_NAME.match(name) is None:
        raise errors.invalid_parameter(
            "Message (user) attributes name can only contain upper and lower score characters, digits, periods,"
            " hyphens and underscores. "
        )
    if _RESERVED.match(name) is not None:
        raise errors.invalid_parameter(
            "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'."
            " These strings are reserved for internal use. Additionally, they cannot start or end with '.'."
        )


def _type(name: str, value: Mapping[str, Any]) -> str:
    """String, Number or Binary: what is before the point of a type that a sender may make more of."""
    data_type = value.get("DataType")
    if not data_type:
        raise errors.invalid_parameter(
            f"Message (user) attribute '{name}' must contain a non-empty message attribute type."
        )
    found = _TYPE.match(data_type)
    if found is None:
        raise errors.invalid_parameter(
            f"The type of message (user) attribute '{name}' is invalid. You must use only the following supported"
            " type prefixes: Binary, Number, String."
        )
    if len(data_type.encode("utf-8", "surrogatepass")) > 256:
        raise errors.invalid_parameter("Message (user) attribute types must be shorter than 256 Bytes")
    _body(data_type)
    return found[1]


def _check_value(name: str, value: Mapping[str, Any], kind: str) -> None:
    if "StringListValues" in value or "BinaryListValues" in value:
        raise errors.unsupported("Message attribute list values in SendMessage operation are not supported.")
    field, other = ("BinaryValue", "StringValue") if kind == "Binary" else ("StringValue", "BinaryValue")
    if not value.get(field):
        raise errors.invalid_parameter(
            f"Message (user) attribute '{name}' must contain a non-empty value of type '{kind}'."
        )
    if other in value:
        raise errors.invalid_parameter(f"Message (user) attribute '{name}' has a {other}, but its type is '{kind}'.")
    if kind != "Binary":
        _body(value[field])
    if kind == "Number" and _NUMBER.match(value[field]) is None:
        raise errors.invalid_parameter(f"Can't cast the value of message (user) attribute '{name}' to a number.")


def _trace(system: Mapping[str, Mapping[str, Any]]) -> str:
    for name, value in system.items():
        if name != TRACE:
            raise errors.invalid_parameter(
                f"Message system attribute name '{name}' is invalid. You must use only the following supported"
                f" message system attribute names: {TRACE}."
            )
        if value.get("DataType") != "String" or not value.get("StringValue"):
            raise errors.invalid_parameter(
                f"Message (system) attribute '{name}' must contain a non-empty value of type 'String'."
            )
        _body(value["StringValue"])
    found: str = system[TRACE]["StringValue"]
    return found


def _body(text: str) -> bytes:
    """Its UTF-8; SqsError for a character that XML does not have."""
    try:
        found = text.encode()
    except UnicodeEncodeError as error:  # half of a surrogate pair
        raise errors.invalid_message_contents() from error
    # Looking at the bytes is ten times as fast as asking a pattern about each character.
    if len(found.translate(None, _CONTROLS)) != len(found):
        raise errors.invalid_message_contents()
    if not text.isascii() and any(one in found for one in _NO_CHARACTERS):
        raise errors.invalid_message_contents()
    return found


def _bytes(part: Any) -> int:
    if isinstance(part, str):
        return len(part.encode("utf-8", "surrogatepass"))
    return len(part) if isinstance(part, bytes) else sum(_bytes(one) for one in part)


def _too_long(limit_bytes: int, *, in_batch: bool) -> SqsError:
    reason = f"Reason: Message must be shorter than {min(limit_bytes, MOST_BYTES)} bytes."
    return errors.invalid_parameter(
        f"One or more parameters {'cannot be validated' if in_batch else 'are invalid'}. {reason}"
    )
