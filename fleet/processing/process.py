"""One message of the pipeline: take its job, deliver the payload to its target, record what came of it.

The router that sent the message is told `ack` whatever the target answered: the pipeline retries, through
`scheduled_ms`. If the router retried as well, both would deliver the job.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, TypeVar, assert_never

from fleet.clock import Clock
from fleet.delivery.breakers import Breakers
from fleet.delivery.client import HttpClient, Transfer
from fleet.delivery.reply import Reply
from fleet.delivery.request import Requests, Ticket
from fleet.delivery.signatures import Unsignable
from fleet.errors import JobStoreError, JobStoreUnavailable
from fleet.jobs.app_key import is_token_of
from fleet.jobs.records import FINISHED, Busy, Expired, Job, Over, Taken
from fleet.jobs.store import MARGIN_MS, JobStore, why_not
from fleet.outcome import MAX_RETRY_S, Failed, NotSent, Outcome, Rejected, Uncallable
from fleet.processing.signers import JobSigners
from fleet.processing.targets import Shut, Targets, Turns
from fleet.processing.webhook import outcome_of, request_headers
from fleet.sign import Signer

log = logging.getLogger("fleet.jobs")

P = ParamSpec("P")
T = TypeVar("T")

AT_ONCE = 512
"""Deliveries under way. Each holds a payload of up to 1 MiB, and the request of a worker that waits for it."""
THREADS = 8
_SETTLE_AGAIN_S = 0.5
_RETURN_S = (1, 2, 5)
"""By attempt, or until the breaker may be probed, if that is longer. Those that come ask for the probe: with 30 s a
target that fails some of its jobs was shut nearly all of the time."""
_ASLEEP_MS = 1000.0
_COMPLAIN_EVERY_MS = 60_000.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What the router is told."""

    ack: bool
    message: str
    delay_s: int = 0


class _Lapsed(Exception):
    """Somebody else may have taken the job by now."""


class Processor:
    def __init__(
        self,
        *,
        open_store: Callable[[], JobStore],
        read_key: Callable[[], bytes],
        http: HttpClient,
        clock: Clock,
        breakers: Breakers,
        forbids_url: Callable[[str], bool],
        signers: JobSigners,
        window: int,
    ) -> None:
        """`open_store` and `read_key` are called at the first message: a server without jobs makes no files.

        `window`: how many NEXT_ON_ERROR jobs of a group the feed has out at most.
        """
        self._open_store = open_store
        self._read_key = read_key
        self._clock = clock
        self._requests = Requests(
            client=http,
            clock=clock,
            breakers=breakers,
            forbids_url=forbids_url,
            asleep_ms=_ASLEEP_MS,
            drop_lapsed=self._drop_lapsed,
        )
        self._targets = Targets(self._requests)
        self._signers = signers
        self._turns = Turns()
        self._window = window
        self._opened: tuple[bytes, JobStore] | None = None
        self._opening = threading.Lock()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="jobs")
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._flights: dict[Transfer, tuple[float, asyncio.Future[Outcome]]] = {}
        self._complain_ms = 0.0
        self.counts: Counter[str] = Counter()
        """Since our start: `attempt.OUTCOME` and `refused.WHY`, for the heartbeat."""

    async def is_token(self, job_id: str, token: str) -> bool:
        good = is_token_of((await self._run(self._open))[0], job_id, token)
        now_ms = self._clock.boot_ms()
        if not good and now_ms >= self._complain_ms:
            # Anybody can send such a token: one line a minute says it, a line each would bury what matters.
            self._complain_ms = now_ms + _COMPLAIN_EVERY_MS
            log.warning("a message came with a token of another key: is FLEET_DATABASE_APP_KEY the same everywhere?")
        return good

    async def process(self, job_id: str, attempt: int) -> Answer:
        async with self._at_once:
            _, store = await self._run(self._open)
            seen = await self._run(store.job, job_id)
            if seen is None or seen.status in FINISHED or seen.attempt != attempt:
                return self._told(why_not(seen, attempt))
            # Before it is taken: what cannot be signed now spends no attempt.
            signer = await self._signers.of(seen.pool)
            if isinstance(signer, Unsignable):
                raise JobStoreError(signer.reason)
            # Likewise while its target is known to fail.
            ticket = await self._admit(seen)
            if isinstance(ticket, Shut):
                return await self._return(store, seen, ticket)
            try:
                asked_ms = self._clock.boot_ms()
                take = await self._run(store.take, job_id, attempt)
                if isinstance(take, Taken):
                    return await self._deliver(store, take.job, signer, ticket, asked_ms)
                return self._told(take)
            finally:
                ticket.close()

    async def _return(self, store: JobStore, job: Job, shut: Shut) -> Answer:
        """Into the job store, where it takes no room. A message that waits takes its pool's, from all other targets."""
        least_s = max(shut.delay_s, _RETURN_S[min(job.attempt, len(_RETURN_S)) - 1])
        now_ms = self._clock.wall_ms()
        due_ms = self._turns.next(shut.origin, now_ms=now_ms, not_before_ms=now_ms + least_s * 1000)
        gone = await self._run(partial(store.return_, job, due_ms=due_ms, window=self._window))
        if gone is not None:
            return self._told(gone)
        self.counts["refused.breaker"] += 1
        again_s = math.ceil((due_ms - now_ms) / 1000)
        return Answer(True, f"the circuit breaker of {shut.origin} is open: it goes again in {again_s} s")

    async def _admit(self, job: Job) -> Ticket | Shut:
        now_ms = self._clock.wall_ms()
        late = job.expires_ms is not None and job.expires_ms <= now_ms
        busy = job.status == "IN_PROGRESS" and (job.claimed_until_ms or 0) > now_ms
        if late or busy or self._requests.forbidden(job.target_url):
            return self._targets.unasked(job.target_url)
        return await self._targets.admit(job.target_url)

    def _told(self, take: Busy | Expired | Over) -> Answer:
        match take:
            case Busy(until_ms):
                self.counts["refused.busy"] += 1
                left_s = math.ceil((until_ms - self._clock.wall_ms()) / 1000)
                return Answer(False, "it is being delivered", max(1, min(left_s, MAX_RETRY_S)))
            case Expired():
                self.counts["refused.expired"] += 1
                return Answer(True, "the job has expired")
            case Over(why):
                self.counts["refused.over"] += 1
                return Answer(True, why)
            case _:
                assert_never(take)

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._opened is not None:
            self._opened[1].close()

    # Delivery -------------------------------------------------------------------------------------

    async def _deliver(
        self, store: JobStore, job: Job, signer: Signer | None, ticket: Ticket, asked_ms: float
    ) -> Answer:
        deadline_ms = asked_ms + job.timeout_seconds * 1000 + MARGIN_MS
        started_ms, status = self._clock.wall_ms(), None
        try:
            outcome, status = await self._post(job, signer, ticket, deadline_ms)
        except _Lapsed:
            self.counts["refused.lapsed"] += 1
            return Answer(False, "the time it was taken for is over", 1)
        while True:
            try:
                then = await self._run(
                    partial(store.settle, job, outcome, started_ms=started_ms, status_code=status)
                )  # fmt: skip
                break
            except JobStoreUnavailable as error:
                # The target has it: what is forgotten now is delivered twice.
                if self._clock.boot_ms() >= deadline_ms:
                    raise
                log.warning("job %s is delivered and not recorded yet: %s", job.id, error)
                await asyncio.sleep(_SETTLE_AGAIN_S)
        if then is None:
            self.counts["refused.lapsed"] += 1
            return Answer(True, "somebody else has taken it")
        self.counts[f"attempt.{then.outcome}"] += 1
        if then.error is not None:
            log.info("job %s, attempt %d: %s; it is %s now", job.id, job.attempt, then.error, then.status)
        return Answer(True, then.status)

    async def _post(
        self, job: Job, signer: Signer | None, ticket: Ticket, deadline_ms: float
    ) -> tuple[Outcome, int | None]:
        headers = request_headers(job)
        if headers is None:
            return Rejected(0, "its id or group holds what no header may hold"), None
        if self._clock.boot_ms() >= deadline_ms - job.timeout_seconds * 1000:
            raise _Lapsed
        status: int | None = None
        ended: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def done(reply: Reply) -> None:
            nonlocal status
            status = reply.status or None
            if not ended.done():
                ended.set_result(outcome_of(reply))

        sent = self._requests.post(
            ticket,
            job.target_url,
            headers,
            job.payload.encode(),
            message_id=job.id,
            signer=signer,
            timeout_ms=job.timeout_seconds * 1000,
            done=done,
        )
        if isinstance(sent, NotSent | Failed | Uncallable):
            return sent, None
        self._flights[sent] = (deadline_ms, ended)
        try:
            return await ended, status
        finally:
            del self._flights[sent]
            sent.abort()

    def _drop_lapsed(self) -> None:
        now_ms = self._clock.boot_ms()
        for transfer, (deadline_ms, ended) in self._flights.items():
            if now_ms >= deadline_ms and not ended.done():
                transfer.abort()
                ended.set_exception(_Lapsed())

    # The database's calls, on threads of their own --------------------------------------------------

    async def _run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, partial(call, *args, **kwargs))

    def _open(self) -> tuple[bytes, JobStore]:
        with self._opening:
            if self._opened is None:
                self._opened = self._read_key(), self._open_store()
            return self._opened
