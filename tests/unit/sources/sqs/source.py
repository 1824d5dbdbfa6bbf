"""An SQS source, as tests of it open one."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager

from fleet.clock import Clock, SystemClock
from fleet.sources.sqs.address import parse_address
from fleet.sources.sqs.source import LONG_POLL_S, SqsSource
from tests.messages import opened

SOON_MS = 10_000


def a_source(
    uri: str,
    *,
    connections: int = 1,
    visibility_ms: int = 30_000,
    clock: Clock | None = None,
    long_poll_s: int = LONG_POLL_S,
) -> AbstractAsyncContextManager[SqsSource]:
    source = SqsSource(
        name="orders",
        address=parse_address(uri),
        visibility_ms=visibility_ms,
        connections=connections,
        clock=clock or SystemClock(),
        long_poll_s=long_poll_s,
    )
    return opened(source)
