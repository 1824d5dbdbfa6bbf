"""The driver's line to Redis: an event loop on a thread of its own, because Spark's calls block the driver for minutes.

The thread also renews the lease. A thread that renews what a wedged process holds would keep it for ever; this one
stops when the driver has not said for `patience_s` that it is getting on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from fleet.clock import SystemClock
from fleet.errors import Fenced, FleetError, StateError
from fleet.lease import Lease
from fleet.sources import own
from fleet.sources.base import Surroundings
from fleet.sources.open import open_source
from fleet.state.connect import Client, connect
from fleet.state.keys import FleetKeys
from fleet.state.own_queue import OwnQueue
from fleet.state.registry import Registry
from fleet.state.tracked import which_are_tracked
from spark.sources.send import PRODUCER, is_own

T = TypeVar("T")
PATIENCE_S = 900.0
_WAITS_FOR_TTLS = 3
"""Who was killed holds the lead for one more TTL; who still has it after three is alive."""


class Line:
    def __init__(self, *, redis_url: str, sqs_endpoint: str, ttl_ms: int, patience_s: float = PATIENCE_S) -> None:
        self._redis_url = redis_url
        self._sqs_endpoint = sqs_endpoint
        self._ttl_ms = ttl_ms
        self._patience_s = patience_s
        self._got_on_at = time.monotonic()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="line-to-redis", daemon=True)
        self._client: Client | None = None
        self._lease: Lease | None = None
        self._renewing: asyncio.Task[None] | None = None

    def __enter__(self) -> Line:
        self._thread.start()
        try:
            self._client = self._ask(connect(self._redis_url))
        except BaseException:
            self._end_thread()
            raise
        owner = f"feed-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"
        self._lease = Lease(
            client=self._client, key=FleetKeys.feed, owner=owner, ttl_ms=self._ttl_ms, clock=SystemClock()
        )
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(FleetError):
            self._ask(self._close())
        self._end_thread()

    # The lead -------------------------------------------------------------------------------------

    @property
    def fence(self) -> int:
        """What every write of ours carries. Fenced, once the lead is lost."""
        assert self._lease is not None
        if not self._lease.held:
            raise Fenced("the lead over the feed is lost")
        self._got_on_at = time.monotonic()
        return int(self._lease.epoch)

    def try_to_lead(self) -> bool:
        self._got_on_at = time.monotonic()
        return self._ask(self._try_to_lead())

    def lead(self) -> None:
        """Wait for the lead as long as it may be a dead driver's; FleetError if it is a living one's."""
        give_up = time.monotonic() + self._ttl_ms * _WAITS_FOR_TTLS / 1000
        while not self.try_to_lead():
            holder = self._lease.held_by if self._lease is not None else None
            if time.monotonic() > give_up:
                raise FleetError(f"{holder.owner if holder else 'another'} feeds the queue: nothing was done here")
            time.sleep(min(1.0, (holder.remaining_ms if holder else 0) / 1000 + 0.01))

    async def _try_to_lead(self) -> bool:
        assert self._lease is not None
        if self._renewing is not None:
            self._renewing.cancel()
        if not await self._lease.acquire():
            return False
        self._renewing = asyncio.get_running_loop().create_task(self._renew(self._lease))
        return True

    async def _renew(self, lease: Lease) -> None:
        while time.monotonic() - self._got_on_at < self._patience_s:
            await asyncio.sleep(self._ttl_ms / 3000)
            if not await lease.renew():
                return

    # What the driver asks -------------------------------------------------------------------------

    def shut_others_out(self, uri: str) -> None:
        """Let the queue know of our fence before we need it."""
        if is_own(uri):
            self._ask(OwnQueue(self._opened(), own.name_of(uri)).send([], producer=PRODUCER, epoch=self.fence))

    def depth(self, uri: str) -> tuple[int, float | None]:
        """Messages in the queue, those under way included, and the age of the oldest; None where it does not say."""
        return self._ask(self._depth(uri))

    def memory_share(self) -> float:
        return self._ask(Registry(self._opened()).memory_share())

    def tracked(self, ids: Sequence[str]) -> set[str]:
        """Which of them a router has in hand."""
        return self._ask(which_are_tracked(self._opened(), ids))

    async def _depth(self, uri: str) -> tuple[int, float | None]:
        around = Surroundings(redis_url=self._redis_url, sqs_endpoint=self._sqs_endpoint)
        source = open_source("feed", uri, 30_000, around=around)
        await source.open()
        try:
            depth = await source.depth()
        finally:
            await source.close()
        return depth.waiting + depth.invisible, depth.oldest_s

    def _opened(self) -> Client:
        assert self._client is not None
        return self._client

    def _ask(self, question: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(question, self._loop).result()

    async def _close(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        if self._lease is not None:
            with contextlib.suppress(StateError):
                await self._lease.release()
        if self._client is not None:
            await self._client.aclose()

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
