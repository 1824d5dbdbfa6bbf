"""What a reply means for the message: seed 000's table of responses, as one pure function."""

from __future__ import annotations

from typing import assert_never

import msgspec

from fleet.delivery.reply import ErrorKind, Reply
from fleet.outcome import (
    DEFAULT_RETRY_S,
    MAX_RETRY_S,
    Delivered,
    Failed,
    NotSent,
    Outcome,
    Refenced,
    Rejected,
    Uncallable,
    Unreachable,
    retry_delay_s,
)

_MAX_REASON_CHARACTERS = 200
_DELIVERED = Delivered(200)


class _Body(msgspec.Struct, rename="camel"):
    """The body of a 200. Fields beside `ack` are read later, each by itself: they cannot turn a false into a true."""

    ack: bool | None = None
    message: msgspec.Raw = msgspec.Raw()
    delay_seconds: msgspec.Raw = msgspec.Raw()


# Not strict: "false" and 0 are a no as well.
_decode_body = msgspec.json.Decoder(_Body, strict=False).decode


def classify(reply: Reply) -> Outcome:
    if reply.status == 412 and reply.fenced:
        # Even if the reply broke off later: the endpoint knows a newer epoch, so nothing here is ours to settle.
        return Refenced(412)
    if reply.error is not None:
        return _classify_error(reply.error, reply.detail)
    status = reply.status
    if status == 200:
        return _classify_answer(reply)
    if status == 429:
        return Failed("HTTP 429", retry_s=_retry_after_s(reply.retry_after), status=429)
    if status == 501:
        return Rejected(501, "HTTP 501: not implemented", critical=True)
    if 400 <= status <= 499:
        return Rejected(status, f"HTTP {status}")
    if 500 <= status <= 599:
        return Failed(f"HTTP {status}", status=status, worth_another_attempt=True)
    return Failed(f"unexpected HTTP {status}", status=status)


def _classify_error(error: ErrorKind, detail: str) -> Outcome:
    match error:
        case "TIMEOUT":
            return Failed(_reason("no complete answer before the deadline", detail), worth_another_attempt=True)
        case "CONNECT_TIMEOUT":
            return Unreachable(_reason("no connection in time", detail))
        case "REFUSED":
            return Unreachable(_reason("no connection", detail))
        case "BAD_URL":
            return Uncallable(_reason("not a URL that can be called", detail))
        case "UNRESOLVED":
            return Unreachable(_reason("host name has no address", detail))
        case "RESET":
            return Unreachable(_reason("connection lost", detail))
        case "PROTOCOL":
            return Unreachable(_reason("not a usable HTTP answer", detail))
        case "FORBIDDEN_ADDRESS":
            # Not `Rejected`, which would ack: one wrong answer from a name server would lose the message.
            return NotSent(_reason("address not allowed", detail), warn=True)
        case "OTHER":
            return Failed(_reason("request failed", detail), worth_another_attempt=True)
        case _:
            assert_never(error)


def _classify_answer(reply: Reply) -> Outcome:
    if reply.oversize:
        return Failed("HTTP 200 with a body over 64 KiB", status=200)
    if reply.encoded:
        return Failed("HTTP 200 with an encoded body, which was not asked for", status=200)
    if not reply.body:
        return _DELIVERED
    try:
        body = _decode_body(reply.body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _DELIVERED  # older endpoints answer with plain text
    except RecursionError:
        # It may well say no, only too deep for us to read: never an ack.
        return Failed("HTTP 200 with a body nested too deeply", status=200)
    if body.ack is not False:
        return _DELIVERED
    return Failed(_reason("not acknowledged", _text(body.message)), retry_s=_delay_s(body.delay_seconds), status=200)


def _retry_after_s(value: str | None) -> int:
    """Delta-seconds only; a date, or no header, means the default."""
    if value is None or not value.isascii() or not value.isdigit():
        return DEFAULT_RETRY_S
    return retry_delay_s(_digits(value))


def _delay_s(raw: msgspec.Raw) -> int | None:
    """The delay that was asked for, clamped as the seeds do; None for none, 0, or one that is not a number."""
    if not bytes(raw):
        return None
    try:
        asked = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if isinstance(asked, str) and asked.isascii() and asked.isdigit():
        asked = _digits(asked)
    if isinstance(asked, bool) or not isinstance(asked, int | float):
        return None
    return retry_delay_s(int(max(-1, min(asked, MAX_RETRY_S)))) if asked else None


def _digits(text: str) -> int:
    significant = text.lstrip("0")
    return int(significant or 0) if len(significant) < 10 else MAX_RETRY_S


def _text(raw: msgspec.Raw) -> str:
    try:
        return msgspec.json.decode(raw, type=str) if bytes(raw) else ""
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


def _reason(what: str, detail: str) -> str:
    # It ends up in logs and on pages: on one line, and no longer than fits there.
    printable = "".join(c if c.isprintable() else " " for c in detail[:_MAX_REASON_CHARACTERS])
    return f"{what}: {printable}" if printable else what
