"""The driver's lead, and its connection to Redis: an event loop on a thread of its own, which does what it is asked.

Only the driver's own thread renews the lease: a driver that hangs loses it. What blocks for minutes, Spark and long
statements, runs on another thread, and the lease is kept from here for as long as that work shows progress.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import wait
from typing import Any, TypeVar

from fleet.clock import SystemClock
from fleet.errors import Fenced, FleetError, StateError
from fleet.lease import Lease
from fleet.metrics.counters import Counters
from fleet.sources.base import Surroundings
from fleet.sources.open import open_source
from fleet.sources.own.address import is_own, name_of
from fleet.state.connect import Client, connect
from fleet.state.keys import FleetKeys
from fleet.state.own_queue import OwnQueue
from fleet.state.registry import Registry
from fleet.state.totals import Tally
from fleet.state.tracked import which_are_tracked
from spark.begun import begun
from spark.sources.send import PRODUCER

T = TypeVar("T")
PATIENCE_S = 300.0
_LOST = "the lead over the feed is lost"
_LOOK = 20_000
"""How many waiting groups of the queue are looked at for the oldest message: some 20 ms of Redis."""
_WAITS_FOR_TTLS = 3
"""A killed driver holds the lead for one more TTL. One that still has it after three is alive."""


class Lead:
    def __init__(self, *, redis_url: str, sqs_endpoint: str, ttl_ms: int, patience_s: float = PATIENCE_S) -> None:
        self._redis_url = redis_url
        self._sqs_endpoint = sqs_endpoint
        self._ttl_ms = ttl_ms
        self._beat_s = ttl_ms / 10_000
        self._patience_s = patience_s
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lead", daemon=True)
        self._client: Client | None = None
        self._lease: Lease | None = None
        self._counters = Counters()
        self._tally: Tally | None = None

    def __enter__(self) -> Lead:
        self._thread.start()
        try:
            self._client = self._ask(connect(self._redis_url))
        except BaseException:
            self._end_thread()
            raise
        owner = f"feed-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(2)}"
        self._tally = Tally(self._client, owner, self._counters)
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
        """What every write of ours carries. Raises Fenced once the lead is lost."""
        self.keep()
        return int(self._held().epoch)

    def still_leads(self, fence: int) -> bool:
        """Whether this is still the lead that had `fence`. For other threads, which may not renew it."""
        lease = self._lease
        return lease is not None and lease.held and int(lease.epoch) == fence

    def keep(self) -> None:
        """Say that we are getting on: renew the lead if it is time to. Raises Fenced once it is lost."""
        lease = self._held()
        if lease.ageing and not self._ask(lease.renew()):
            raise Fenced(_LOST)

    def attend(self, work: Callable[[], T], *, progress: Callable[[], object] = lambda: None) -> T:
        """Do what takes long on another thread, and keep the lead meanwhile.

        Raises Fenced if the lead is lost, or given up because `progress` said the same for `patience_s`. The work is
        then left to itself: its fence sees to it that nothing it still does counts.
        """
        doing = begun(work, name="attended")
        said, since, looked = progress(), time.monotonic(), time.monotonic()
        while not wait([doing], self._beat_s).done:
            self.keep()
            now = time.monotonic()
            if now - looked < min(1.0, self._patience_s / 4):
                continue
            says, looked = progress(), now
            if says != said:
                said, since = says, now
            elif now - since > self._patience_s:
                self._give_up()
                raise Fenced(f"no progress for {self._patience_s:g} s: the lead is given up")
        return doing.result()

    def rest(self, stopping: threading.Event, seconds: float) -> None:
        """Wait, and keep the lead."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not stopping.wait(min(left, self._beat_s)):
            self.keep()
        self.keep()

    def try_to_lead(self) -> bool:
        assert self._lease is not None
        return self._ask(self._lease.acquire())

    def lead(self, say: Callable[[str], None] = lambda _: None) -> None:
        """Wait for the lead as long as a dead driver may hold it. FleetError if a living one holds it."""
        give_up = time.monotonic() + self._ttl_ms * _WAITS_FOR_TTLS / 1000
        told = False
        while not self.try_to_lead():
            holder = self._lease.held_by if self._lease is not None else None
            if not told:
                told = True
                most_s = self._ttl_ms * _WAITS_FOR_TTLS / 1000
                say(f"another driver leads: waiting up to {most_s:g} s, should it be dead")
            if time.monotonic() > give_up:
                raise FleetError(
                    f"{holder.owner if holder else 'another'} feeds the queue: stop it first, nothing was done here"
                )
            time.sleep(min(1.0, (holder.remaining_ms if holder else 0) / 1000 + 0.01))

    def _held(self) -> Lease:
        assert self._lease is not None
        if not self._lease.held:
            raise Fenced(_LOST)
        return self._lease

    def _give_up(self) -> None:
        assert self._lease is not None
        with contextlib.suppress(StateError):
            self._ask(self._lease.release())

    # What the driver asks -------------------------------------------------------------------------

    def shut_others_out(self, uri: str) -> None:
        """Let the queue know of our fence before we need it."""
        if is_own(uri):
            self._ask(OwnQueue(self._opened(), name_of(uri)).send([], producer=PRODUCER, epoch=self.fence))

    def depth(self, uri: str) -> tuple[int, float | None]:
        """Messages in the queue, those under way included, and the age of the oldest; None where it does not say."""
        return self._ask(self._depth(uri))

    def oldest_s(self, uri: str) -> float | None:
        """The age of the oldest message, those under way included: exact, or None."""
        if not is_own(uri):
            return self.depth(uri)[1]
        found = self._ask(OwnQueue(self._opened(), name_of(uri)).contents(look=_LOOK))
        return found.oldest_ms / 1000 if found.is_whole else None

    def memory_share(self) -> float:
        return self._ask(Registry(self._opened()).memory_share())

    def tell(self, counts: Mapping[str, int]) -> None:
        """Put what this driver has done since its start into the fleet's totals. Best effort: nothing depends on it."""
        with contextlib.suppress(StateError):
            self._ask(self._tell(counts))

    async def _tell(self, counts: Mapping[str, int]) -> None:
        assert self._tally is not None
        self._counters.put("process", "feed", counts)
        await self._tally.tell_all(now_ms=time.monotonic() * 1000)

    def tracked(self, ids: Sequence[str]) -> set[str]:
        """Which of these ids a router has in hand."""
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
        if self._lease is not None:
            with contextlib.suppress(StateError):
                await self._lease.release()
        if self._tally is not None:
            with contextlib.suppress(StateError):
                await self._tally.leave(now_ms=time.monotonic() * 1000)
        if self._client is not None:
            await self._client.aclose()

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
