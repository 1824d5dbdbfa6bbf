"""All circuit breakers of a process, a worker or a server, and their share in Redis.

`admit` and `record` stand before and after every request, so they only look things up. What the fleet must know
waits in `_to_say`, and `run` says it in order, one call at a time for an origin. Without Redis every worker goes
by what it sees itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from fleet.clock import Clock
from fleet.delivery.breaker import OWN_PERMIT, PASS, PROBE, Admit, Breaker, Change
from fleet.errors import StateError
from fleet.state.breakers import IDLE_MS, MOST_ORIGINS, RULES, BreakerRules, Shared, SharedBreakers, heard
from fleet.waiting import happens

ASK_WITHIN_S = 1.0
"""Redis answers in a few ms. If it has not by then, the message is held no longer, and we give ourselves the permit."""
RETRY_S = 1.0
_AT_ONCE = 16
_FORGET_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class _Word:
    """One thing to say about an origin; `epoch` is that of the permit it is about."""

    verb: Literal["open", "ask", "renew", "success", "failure", "release"]
    epoch: str = ""


@dataclass(frozen=True, slots=True)
class _Question:
    """A message that is held until we know whether it may probe."""

    deadline: asyncio.TimerHandle
    decided: Callable[[], object]


class Breakers:
    """Bound to the event loop; times are those of `clock.boot_ms()`."""

    def __init__(
        self,
        *,
        shared: SharedBreakers,
        worker: str,
        clock: Clock,
        rules: BreakerRules = RULES,
        most_origins: int = MOST_ORIGINS,
        idle_ms: float = IDLE_MS,
        ask_within_s: float = ASK_WITHIN_S,
    ) -> None:
        self._shared = shared
        self._worker = worker
        self._clock = clock
        self._rules = rules
        self._most = most_origins
        self._idle_ms = idle_ms
        self._ask_within_s = ask_within_s
        self._origins: dict[str, Breaker] = {}  # in order of use, the latest last
        self._questions: dict[str, _Question] = {}
        self._to_say: dict[str, list[_Word]] = {}
        self._unsaid: set[str] = set()
        """Origins whose breaker opened here, which Redis does not know yet."""
        self._probing: dict[str, None] = {}
        """Our probes under way whose permits must be renewed."""
        self._look = True
        self._retry: asyncio.TimerHandle | None = None
        self._wake = asyncio.Event()

    # The hot path -------------------------------------------------------------------------------

    def admit(self, origin: str, now_ms: float) -> Admit:
        """May a request go to it now? A URL without an origin may: libcurl will refuse it."""
        breaker = self._origins.pop(origin, None)
        if breaker is None:
            if not origin:
                return PASS
            self._forget_some(now_ms)
            breaker = Breaker(self._rules)
        self._origins[origin] = breaker
        breaker.used_ms = now_ms
        admitted = breaker.admit(now_ms)
        if admitted is PROBE and breaker.permit:
            self._probing[origin] = None
            self._wake.set()
        return admitted

    def record(self, origin: str, ok: bool, now_ms: float, *, probe: bool = False) -> None:
        """What came of a request that was admitted; `probe` if it was admitted as one."""
        breaker = self._origins.get(origin)
        if breaker is None:
            return
        permit = breaker.permit
        match breaker.record(ok, now_ms, probe=probe):
            case Change.NONE:
                return
            case Change.OPENED:
                self._open(origin)
            case Change.PROBE_SUCCEEDED if permit:
                self._say(origin, _Word("success", permit))
            case Change.PROBE_FAILED if permit:
                self._say(origin, _Word("failure", permit))
            case Change.PROBE_FAILED:
                self._open(origin)
            case _:
                pass  # a success under our own permit: Redis is not there to hear it
        self._probing.pop(origin, None)

    # Probes -------------------------------------------------------------------------------------

    def ask(self, origin: str, decided: Callable[[], object]) -> asyncio.TimerHandle:
        """Ask for the permit. `decided` is called once, later: admit again then. To be left out, cancel the timer."""
        breaker = self._origins[origin]
        breaker.asking = True
        deadline = asyncio.get_running_loop().call_later(self._ask_within_s, self._on_no_answer, origin, decided)
        self._questions[origin] = _Question(deadline, decided)
        self._say(origin, _Word("ask"))
        return deadline

    def release(self, origin: str) -> None:
        """The probe ended and showed nothing about the endpoint: another one may be sent."""
        breaker = self._origins.get(origin)
        if breaker is None or not breaker.probing:
            return
        self._release_permit(origin, breaker)

    def _release_permit(self, origin: str, breaker: Breaker) -> None:
        permit = breaker.permit
        breaker.end_probe()
        self._probing.pop(origin, None)
        if permit:
            self._say(origin, _Word("release", permit))

    def _on_no_answer(self, origin: str, decided: Callable[[], object]) -> None:
        if origin in self._questions:
            self._decide_alone(origin)
        else:
            decided()  # forgotten meanwhile, to make room

    def _decide_alone(self, origin: str) -> None:
        """Redis does not answer. At worst each worker sends a probe, instead of one among them all."""
        question = self._questions.pop(origin, None)
        breaker = self._origins.get(origin)
        if breaker is not None:
            breaker.asking = False
            if question is not None and not question.deadline.cancelled():
                breaker.grant(OWN_PERMIT)
        self._decide(origin, question)

    def _decide(self, origin: str, question: _Question | None) -> None:
        if question is not None and not question.deadline.cancelled():
            question.deadline.cancel()
            question.decided()
        breaker = self._origins.get(origin)
        if breaker is not None and breaker.permit is not None and not breaker.probing:
            self._release_permit(origin, breaker)  # the message that wanted it is gone

    # What others found out ----------------------------------------------------------------------

    def on_message(self, message: str) -> None:
        """Handler of BREAKER_CHANNEL."""
        origin, shared = heard(message)
        now_ms = self._clock.boot_ms()
        if not origin:
            for each in list(self._origins):
                self._adopt(each, shared, now_ms)
        elif origin in self._origins or shared.tag == "open":
            self._adopt(origin, shared, now_ms)

    def resync(self) -> None:
        """Messages may have been missed: read all of them again."""
        self._look = True
        self._wake.set()

    def _adopt(self, origin: str, shared: Shared, now_ms: float) -> None:
        breaker = self._origins.get(origin)
        if breaker is None:
            self._forget_some(now_ms)
            breaker = self._origins[origin] = Breaker(self._rules)
            breaker.used_ms = now_ms
        breaker.adopt(shared, now_ms)
        if not breaker.probing:
            self._probing.pop(origin, None)

    # What the others must know ------------------------------------------------------------------

    async def run(self) -> None:
        """Speak with Redis until cancelled."""
        loop = asyncio.get_running_loop()
        renew_every_s = self._shared.permit_ms / 3000
        renewed_at = loop.time()
        while True:
            await happens(self._wake, within_s=renew_every_s if self._probing else None)
            self._wake.clear()
            if loop.time() - renewed_at >= renew_every_s:
                renewed_at = loop.time()
                for origin in self._probing:
                    breaker = self._origins.get(origin)
                    if breaker is not None and breaker.permit:
                        self._say(origin, _Word("renew", breaker.permit))
            if self._look:
                await self._look_at_all()
            while self._to_say:
                origins = list(islice(self._to_say, _AT_ONCE))
                await asyncio.gather(*(self._tell(origin, self._to_say.pop(origin)) for origin in origins))

    def _say(self, origin: str, word: _Word) -> None:
        self._to_say.setdefault(origin, []).append(word)
        self._wake.set()

    def _open(self, origin: str) -> None:
        self._unsaid.add(origin)
        self._say(origin, _Word("open"))

    async def _tell(self, origin: str, words: list[_Word]) -> None:
        away = False
        for word in words:
            breaker = self._origins.get(origin)
            if breaker is None:
                return
            if word.verb == "open" and breaker.state(self._clock.boot_ms()) == "closed":
                self._unsaid.discard(origin)  # somebody has reset it meanwhile
                continue
            try:
                # After a call that failed no other is tried: words would pile up behind its timeout.
                shared = None if away else await self._call(origin, word, breaker)
            except StateError:
                shared = None
            if shared is None:
                away = True
                self._not_said(origin, word)
                continue
            self._unsaid.discard(origin)
            self._adopt(origin, shared, self._clock.boot_ms())
            if word.verb == "ask":
                self._answered(origin, shared)

    async def _call(self, origin: str, word: _Word, breaker: Breaker) -> Shared:
        match word.verb:
            case "open":
                left_ms = max(1, round(breaker.until_ms - self._clock.boot_ms()))
                return await self._shared.open(origin, self._worker, for_ms=left_ms)
            case "ask":
                return await self._shared.ask(origin, self._worker)
            case "renew":
                return await self._shared.renew(origin, self._worker, word.epoch)
            case "release":
                return await self._shared.release(origin, self._worker, word.epoch)
            case "success" | "failure":
                return await self._shared.judge(origin, self._worker, word.epoch, ok=word.verb == "success")

    def _answered(self, origin: str, shared: Shared) -> None:
        question = self._questions.pop(origin, None)
        breaker = self._origins.get(origin)
        if breaker is None:
            return  # forgotten meanwhile: the permit lapses by itself
        breaker.asking = False
        if shared.tag == "granted":
            # If we have decided alone meanwhile, the probe under way now has the fleet's permit.
            breaker.grant(shared.epoch)
            if breaker.probing:
                self._probing[origin] = None
        self._decide(origin, question)

    def _not_said(self, origin: str, word: _Word) -> None:
        if word.verb == "ask":
            self._decide_alone(origin)
        elif word.verb == "failure":
            self._unsaid.add(origin)
        self._try_later()

    def _try_later(self) -> None:
        if self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self._say_again)

    def _say_again(self) -> None:
        """Redis may be back: tell it what it did not hear, unless that is over."""
        self._retry = None
        now_ms = self._clock.boot_ms()
        for origin in list(self._unsaid):
            breaker = self._origins.get(origin)
            if breaker is not None and breaker.state(now_ms) == "open":
                if _Word("open") not in self._to_say.get(origin, ()):
                    self._say(origin, _Word("open"))
            else:
                self._unsaid.discard(origin)
        if self._look:
            self._wake.set()

    async def _look_at_all(self) -> None:
        self._look = False  # before the call: another request for a look meanwhile is not lost
        try:
            clock_ms, views = await self._shared.all()
        except StateError:
            self._look = True
            self._try_later()
            return
        # A message from the very millisecond in which this was read may be newer than it.
        as_of_ms = clock_ms - 1
        now_ms = self._clock.boot_ms()
        for view in views[: self._most]:
            if view.origin in self._unsaid:
                continue  # we know something newer
            tag = "open" if view.state == "open" else "half"
            self._adopt(view.origin, Shared(tag, as_of_ms, view.retry_after_ms, view.successes), now_ms)
        there = {view.origin for view in views}
        for origin in self._origins.keys() - there - self._unsaid:
            self._adopt(origin, Shared("closed", as_of_ms), now_ms)

    # Bounds -------------------------------------------------------------------------------------

    def _forget_some(self, now_ms: float) -> None:
        """Make room for one more: idle ones go, and at the limit the one that was used longest ago."""
        for _ in range(_FORGET_AT_ONCE):
            oldest = next(iter(self._origins), "")
            if not oldest:
                return
            idle = now_ms - self._origins[oldest].used_ms >= self._idle_ms
            if not idle and len(self._origins) < self._most:
                return
            del self._origins[oldest]
            self._unsaid.discard(oldest)
            self._probing.pop(oldest, None)
            self._to_say.pop(oldest, None)
            self._questions.pop(oldest, None)

    def __len__(self) -> int:
        return len(self._origins)
