"""What travels: the message as a producer wrote it, and the checks that keep it deliverable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from fleet.errors import InvalidMessage

MAX_BODY_BYTES = 256 * 1024
MAX_NAME_CHARACTERS = 128
DEFAULT_GROUP = "__DEFAULT__"
DEFAULT_POOL = "DEFAULT-POOL"

DispatchMode = Literal["IMMEDIATE", "NEXT_ON_ERROR", "BLOCK_ON_ERROR"]
POLICY_OF: Mapping[DispatchMode, str] = {"IMMEDIATE": "return", "NEXT_ON_ERROR": "skip", "BLOCK_ON_ERROR": "hold"}
"""What a message asks for after a failure; without a mode, its pool decides (`onFailure`)."""
MODE_OF: Mapping[str, DispatchMode] = {policy: mode for mode, policy in POLICY_OF.items()}


class Message(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One delivery order. Unknown fields of a body are ignored, absent ones stay absent."""

    id: str
    mediation_target: str
    pool_code: str = ""
    auth_token: str = ""
    mediation_type: Literal["HTTP"] = "HTTP"
    message_group_id: str | None = None
    high_priority: bool = False
    dispatch_mode: DispatchMode | None = None


_decoder = msgspec.json.Decoder(Message)
_encoder = msgspec.json.Encoder()


def decode(body: bytes) -> Message:
    """Read a body, or say in one line why it can never be delivered."""
    _check_size(body)
    try:
        message = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidMessage(f"body is not a message: {error}") from error
    return _checked(message)


def encode_checked(message: Message) -> bytes:
    """A body that `decode` accepts; InvalidMessage if it would not."""
    if message.dispatch_mode is not None and message.dispatch_mode not in POLICY_OF:
        raise InvalidMessage(f"dispatchMode is not one of {', '.join(POLICY_OF)}")
    body = encode(_checked(message))
    _check_size(body)
    return body


def _check_size(body: bytes) -> None:
    if len(body) > MAX_BODY_BYTES:
        raise InvalidMessage(f"body is {len(body)} bytes, the limit is {MAX_BODY_BYTES}")


def _checked(message: Message) -> Message:
    group, pool = message.message_group_id or "", message.pool_code
    # One check of all fields, as most messages are well formed: this runs for every message.
    if (
        0 < len(message.id) <= MAX_NAME_CHARACTERS
        and len(group) <= MAX_NAME_CHARACTERS
        and len(pool) <= MAX_NAME_CHARACTERS
        and f"{message.id}{group}{pool}{message.mediation_target}{message.auth_token}".isprintable()
        and message.mediation_target.startswith(("http://", "https://"))
        and " " not in message.mediation_target
    ):
        return message
    _complain(message)
    return message


def _complain(message: Message) -> None:
    """Name the first thing that is wrong."""
    _check_name("id", message.id)
    if message.message_group_id:
        _check_name("messageGroupId", message.message_group_id)
    if message.pool_code:
        _check_name("poolCode", message.pool_code)
    # Control characters would let a message write headers, and separate fields in our own records.
    if not message.mediation_target.isprintable() or " " in message.mediation_target:
        raise InvalidMessage("mediationTarget holds a control character or a space")
    if not message.mediation_target.startswith(("http://", "https://")):
        raise InvalidMessage("mediationTarget is not an http or https URL")
    if not message.auth_token.isprintable():
        raise InvalidMessage("authToken holds a control character")


def encode(message: Message) -> bytes:
    return _encoder.encode(message)


def _check_name(field: str, value: str) -> None:
    if not value:
        raise InvalidMessage(f"{field} is empty")
    if len(value) > MAX_NAME_CHARACTERS:
        raise InvalidMessage(f"{field} has {len(value)} characters, the limit is {MAX_NAME_CHARACTERS}")
    if not value.isprintable():
        raise InvalidMessage(f"{field} holds an unprintable character")
