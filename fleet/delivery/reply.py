"""What an endpoint answered, or why it did not: only as much as `classify` needs."""

from __future__ import annotations

from typing import Literal

import msgspec

MAX_REPLY_BODY_BYTES = 64 * 1024
MAX_REPLY_HEADER_BYTES = 64 * 1024

ErrorKind = Literal[
    "TIMEOUT",  # connected, but no complete answer before the deadline
    "CONNECT_TIMEOUT",  # no connection (name, TCP, TLS) before its own or the request's deadline
    "REFUSED",  # nothing listens there, or there is no route to it
    "UNRESOLVED",  # the host name has no address
    "RESET",  # the connection ended before the answer did
    "PROTOCOL",  # what was answered is not HTTP as we take it, or TLS failed
    "BAD_URL",  # not a URL that could ever be called
    "FORBIDDEN_ADDRESS",  # the host leads to an address that we never call
    "OTHER",
]


class Reply(msgspec.Struct, gc=False):
    """One answer. Made for every request, so a struct outside of the garbage collector's reach."""

    status: int
    """0 when no status line was read. A reply with an `error` may still have one."""
    body: bytes
    """As it came: never decompressed, cut off at 64 KiB (then `oversize`)."""
    seconds: float
    """From `post` to the moment its end was seen."""
    encoded: bool = False
    """A Content-Encoding other than identity was answered."""
    oversize: bool = False
    fenced: bool = False
    """`Fleet-Fenced: 1` was answered."""
    retry_after: str | None = None
    error: ErrorKind | None = None
    detail: str = ""


class Headers(msgspec.Struct):
    """The reply headers that decide something."""

    encoded: bool = False
    retry_after: str | None = None
    fenced: bool = False
    complete: bool = False
    """The empty line after them was read."""


def read_headers(raw: bytes) -> Headers:
    """Pick them out of all header lines as they came: interim replies first, trailers last. Neither of these counts."""
    found = Headers()
    in_head = False
    for line in raw.removesuffix(b"\n").split(b"\n"):
        line = line.strip()
        if line.startswith(b"HTTP/"):
            found, in_head = Headers(), True
        elif not line:
            found.complete = found.complete or in_head
            in_head = False
        elif in_head:
            name, _, value = line.decode("latin-1").partition(":")
            match name.lower():
                case "content-encoding":
                    codings = (coding.strip().lower() for coding in value.split(","))
                    found.encoded = found.encoded or any(coding not in ("", "identity") for coding in codings)
                case "retry-after":
                    found.retry_after = value.strip()
                case "fleet-fenced":
                    found.fenced = value.strip() == "1"
    return found
