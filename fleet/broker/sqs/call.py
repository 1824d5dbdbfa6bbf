"""One request of the SQS door as its verbs see it, and what goes back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

Protocol = Literal["json", "query"]


def _listening() -> bool:
    return False


class Call(msgspec.Struct, kw_only=True):
    verb: str
    params: dict[str, Any]
    """Named as in AWS JSON, whatever protocol brought them; a binary value is decoded."""
    protocol: Protocol = "json"
    base_url: str = ""
    """Where this client reached us, by its validated Host: every QueueUrl begins with it."""
    queue_name: str = ""
    """Out of the QueueUrl, else out of the path; empty: the call names no queue."""
    request_id: str = ""
    is_charged: bool = False
    """Whether it has paid. It is asked again where its queue turns out to have changed, and pays once."""
    is_gone: Callable[[], bool] = _listening
    """Whether the client has hung up."""


class Reply(msgspec.Struct):
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes = b""
