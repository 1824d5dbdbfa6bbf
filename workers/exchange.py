"""One pool as a worker sees it: the leases it holds there, what it owes, and one call in flight at a time.

The call settles everything that finished while the last one was under way, and claims what there is room
for. So batches are as large as the load makes them, and nothing waits for a timer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from fleet import failpoint
from fleet.clock import Clock
from fleet.errors import StateError, StateFull, StateUnavailable
from fleet.lease import safe_deadline
from fleet.state.cluster import PerNode
from fleet.state.pool import Claim, Exchanged, Policy, Pool, Settlement
from fleet.state.scripts import number
from fleet.waiting import Backoff
from workers.account import Account
from workers.due import DueTimer
from workers.lease import LaneLease
from workers.renew import Renewal

if TYPE_CHECKING:
    from workers.report import Reporter
    from workers.seats import Seats

log = logging.getLogger("fleet.worker")

MAX_CLAIM = number("with/wake", "LANES_EACH")
"""A call asks for at most this many lanes: its reply stays around 100 KB, and other workers get their turn."""
CHUNK = 16
"""Messages of one lane under one lease: a long lane costs one claim for sixteen of them."""
KEEP_EVERY_MS = 1.0
"""Outcomes of leases that go on are settled this often. A single lane has one every 60 us, and a call for each would
cost as much again. Whatever gives back, fails or claims is settled at once."""
PERMIT_MS = 950.0
"""A permit's window is a second longer than a minute, so a delivery may begin that long after it. Any later, and two
windows would overlap at the endpoint. Counted from before we asked, by our own clock, which may run a little slower."""
STALL_MS = 250.0
"""A call takes a few ms, on a busy machine some tens. Without an answer for this long a lease's next message waits:
one that is answered but not settled when the lease lapses is delivered twice."""


class PoolLink:
    def __init__(
        self,
        *,
        pool: Pool,
        worker: str,
        ttl_ms: int,
        clock: Clock,
        seats: Seats,
        calls_at_once: PerNode,
        reporter: Reporter,
        account: Account,
        start: Callable[[LaneLease], None],
        on_claimed: Callable[[LaneLease], None],
        on_state: Callable[[StateError | None], None],
        on_crash: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self.pool = pool
        self.leases: dict[str, LaneLease] = {}
        self.place = 0
        """Ours among the workers that hear of the pool (workers/homes.py): the first looks when something is due."""
        self.paused = False
        self.policy = Policy()
        self.stopping = False
        self._worker = worker
        self._ttl_ms = ttl_ms
        self._clock = clock
        self._seats = seats
        self._calls_at_once = calls_at_once
        self._reporter = reporter
        self._account = account
        self._start = start
        self._on_claimed = on_claimed
        self._on_state = on_state
        self._on_crash = on_crash
        self._owed: dict[LaneLease, Settlement] = {}
        self._trims: list[int] = []
        # Above the numbers of any earlier link of this process to the pool: the outbox keeps outcomes by call.
        self._calls = clock.wall_ms() * 1000
        self._hungry = False
        self._looking = False
        self._urgent = False
        self._began_ms = 0.0
        self._later: asyncio.TimerHandle | None = None
        self._in_doubt = False
        self._asked_at_ms = 0.0
        self._stalled: list[LaneLease] = []
        self._task: asyncio.Task[None] | None = None
        self.due = DueTimer(self.look, lambda: self.stopping)
        self.renewal = Renewal(self, worker=worker, ttl_ms=ttl_ms, clock=clock, on_state=on_state, on_crash=on_crash)

    @property
    def busy(self) -> bool:
        """Whether anything is held, owed or under way."""
        return bool(self.leases or self._owed or self._trims or self._task)

    def wake(self) -> None:
        """There may be work."""
        self._hungry = True
        self.poke(urgent=True)

    def look(self) -> None:
        """Something is due, or may be: ask, even if we can take no lease now. Others are told of what is ready then."""
        self._looking = True
        self.wake()

    def close(self) -> None:
        """Its pool is gone. Claim nothing more, as nothing would renew the lease; what is owed is still settled."""
        self.stopping = True
        self.due.end()

    def is_stalled(self, now_ms: float) -> bool:
        """Whether Redis keeps us waiting: what is delivered now may not be settled before its lease lapses."""
        return bool(self._asked_at_ms) and now_ms - self._asked_at_ms > STALL_MS

    def hold_back(self, lease: LaneLease) -> None:
        """Its next message goes out once Redis has answered."""
        self._stalled.append(lease)

    def owe(self, lease: LaneLease) -> Settlement:
        """What the next call will settle for this lease."""
        settlement = self._owed.get(lease)
        if settlement is None:
            settlement = self._owed[lease] = Settlement(lease.lane, lease.epoch)
        return settlement

    def release(self, lease: LaneLease, how: str = "ready") -> Settlement:
        """Give a lease back with the next call; what it holds beyond that goes on waiting in its lane."""
        self._forget(lease)
        settlement = self.owe(lease)
        settlement.release = how
        self._urgent = True
        return settlement

    def drop(self, lease: LaneLease) -> None:
        """We lost this lease: nothing is settled, nothing given back."""
        lease.stop()
        self._forget(lease)
        self._owed.pop(lease, None)
        self._account.lost_lease()

    def trim(self, call: int) -> None:
        """What this call settled has reached its queues."""
        self._trims.append(call)
        if not self.leases:
            self.poke(urgent=True)  # no settlement will come along to carry it

    def poke(self, *, urgent: bool = False) -> None:
        """Something is owed. It is urgent unless it is the outcomes of leases that go on: more of these follow soon."""
        self._urgent = self._urgent or urgent
        if self._task is not None:
            return
        loop = asyncio.get_running_loop()
        wait_ms = self._wait_ms()
        if wait_ms <= 0:
            self._task = loop.create_task(self._exchange_while_due())
            self._task.add_done_callback(self._on_crash)
        elif self._later is None:
            self._later = loop.call_later(wait_ms / 1000, self._on_later)

    def _wait_ms(self) -> float:
        if self._urgent or self.stopping:
            return 0.0
        return self._began_ms + KEEP_EVERY_MS - self._clock.boot_ms()

    def _on_later(self) -> None:
        self._later = None
        self.poke()

    # The call -----------------------------------------------------------------------------------

    async def _exchange_while_due(self) -> None:
        try:
            while (
                self._owed or self._trims or self._looking or (self._hungry and not self.stopping)
            ) and self._wait_ms() <= 0:
                await self._exchange()
        finally:
            self._task = None
        if self._owed or self._trims:
            self.poke()

    async def _exchange(self) -> None:
        self._urgent = False
        self._began_ms = self._clock.boot_ms()
        want = 0 if self.stopping else self._seats.take(MAX_CLAIM, self)
        self._hungry, looking, self._looking = False, self._looking, False
        if not want and not self._owed and not self._trims and not looking:
            return
        owed, self._owed = self._owed, {}
        trims, self._trims = self._trims, []
        leases, settlements = list(owed), list(owed.values())
        self._calls += 1
        call = self._calls
        self.due.asked()
        try:
            answer, asked_at_ms = await self._call(call, settlements, trims, want)
        except BaseException:
            self._seats.give(want)
            raise
        self._seats.give(want - len(answer.claims))
        stalled, self._stalled = self._stalled, []
        self._learn(answer, want)
        self._settled(call, leases, settlements, answer)
        if answer.claims:
            failpoint.hit("claimed")
            self._begin(answer, asked_at_ms)
        for lease in stalled:
            if self.leases.get(lease.lane) is lease:
                self._start(lease)

    def _learn(self, answer: Exchanged, want: int) -> None:
        """What the pool is like now, and when to ask it again."""
        if answer.tag == "ok" and want and len(answer.claims) == want:
            # There may be more: for us, or, if that was our last seat, for others, which the next call tells.
            self._hungry = self._looking = self._urgent = True
        self.paused = answer.tag == "paused"
        self.policy = answer.policy
        if answer.rate_waits:
            self._account.rate_waits(self.pool.code, answer.rate_waits)
        if answer.tag == "ok":
            self.due.answered(answer.due_ms)

    def _settled(self, call: int, leases: list[LaneLease], settlements: list[Settlement], answer: Exchanged) -> None:
        for i in answer.yields:
            leases[i].yielding = True
        if answer.refused:
            self._account.refused(len(answer.refused))
        for i in answer.refused:
            if self.leases.get(leases[i].lane) is leases[i]:
                # Redis does not know it any more, so another worker may have it: send no more messages under it.
                self.drop(leases[i])
        items = answer.cascaded
        for i, settlement in enumerate(settlements):
            if settlement.items and i not in answer.refused:
                items += settlement.items
        if items:
            self._reporter.report(self, call, items)

    def _begin(self, answer: Exchanged, asked_at_ms: float) -> None:
        """Each lease that was granted."""
        deadline_ms = safe_deadline(asked_at_ms, self._ttl_ms)
        permit_ms = asked_at_ms + PERMIT_MS if answer.policy.rated else float("inf")
        self._owe_no_more(answer.claims)
        for claim in answer.claims:
            lapsed = self.leases.get(claim.lane)
            if lapsed is not None:
                # We were stopped for so long that our own lease has been granted anew, to us.
                self.drop(lapsed)
            lease = LaneLease(self, claim, deadline_ms, permit_ms)
            self.leases[claim.lane] = lease
            self._on_claimed(lease)
            self._start(lease)

    async def _call(
        self, call: int, settlements: list[Settlement], trims: list[int], want: int
    ) -> tuple[Exchanged, float]:
        """Call until it is answered. The same settlements are sent again as they were: settling is idempotent."""
        backoff = Backoff()
        self._asked_at_ms = self._clock.boot_ms()
        while True:
            try:
                async with self._calls_at_once.to(self.pool.keys.entries):
                    asked_at_ms = self._clock.boot_ms()
                    answer = await self.pool.exchange(
                        self._worker,
                        ttl_ms=self._ttl_ms,
                        want=want,
                        chunk=CHUNK,
                        quiet=want == MAX_CLAIM,
                        place=self.place,
                        call=call,
                        trims=trims,
                        settlements=settlements,
                    )
                if answer.claims and failpoint.hit("claim-lost"):
                    raise StateUnavailable("the answer was thrown away by a failpoint")
                if settlements and failpoint.hit("settle-repeated"):
                    raise StateUnavailable("the answer was thrown away by a failpoint")
                self._on_state(None)
                self._asked_at_ms = 0.0
            except (StateUnavailable, StateFull) as error:
                self._on_state(error)
                self._in_doubt = True
                # An error is as good as a long wait: we are stalled at once.
                self._asked_at_ms = min(self._asked_at_ms, self._clock.boot_ms() - 2 * STALL_MS)
                if self.stopping and not settlements:
                    # Nothing to settle: the leader copies what the outbox holds.
                    return Exchanged("ok", None, set(), set(), [], [], self.policy), 0.0
                await backoff.pause()
                continue
            if self._in_doubt:
                # An answer was lost, and with it which outcomes were accepted. The outbox knows.
                self._in_doubt = False
                self._hungry = self._urgent = True
                self._reporter.recover(self)
            return answer, asked_at_ms

    def _owe_no_more(self, claims: list[Claim]) -> None:
        """Forget what we owe under an epoch that was granted anew: Redis lost the first grant, and settling it would
        end the new lease."""
        granted = {(claim.lane, claim.epoch) for claim in claims}
        for lease in [lease for lease in self._owed if (lease.lane, lease.epoch) in granted]:
            if self.leases.get(lease.lane) is not lease:
                del self._owed[lease]
                self._account.lost_lease()

    def _forget(self, lease: LaneLease) -> None:
        if self.leases.get(lease.lane) is lease:
            del self.leases[lease.lane]
            self._seats.give(1)
