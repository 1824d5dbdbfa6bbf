"""Circuit breakers in Redis: one script call each, off the hot path. Only those that are not closed are kept there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from fleet.state.connect import Client, translated
from fleet.state.keys import FleetKeys
from fleet.state.registry import Registry
from fleet.state.scripts import SEP, script
from fleet.words import utc

StateName = Literal["closed", "open", "half-open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerRules:
    window: int = 10
    """The last so many requests are judged, never fewer."""
    failure_ratio: float = 0.5
    open_ms: int = 5000
    successes_to_close: int = 3
    probe_limit_ms: float = 960_000
    """Longer than any request may take (the seed's 15 min). A probe that was never recorded is given up then."""

    @property
    def mask(self) -> int:
        return (1 << self.window) - 1


RULES = BreakerRules()
MOST_ORIGINS = 10_000
IDLE_MS = 3_600_000
"""A breaker that nobody has asked about for an hour is forgotten, which closes it."""
PERMIT_MS = 10_000
LONGEST_OPEN_MS = 60_000
"""If one seems open for longer, the clock has stepped back since. `breaker.lua` judges it so too."""


@dataclass(frozen=True, slots=True)
class Shared:
    """A breaker as Redis holds it, at one moment of Redis's clock."""

    tag: str
    """`closed`, `open` for `left_ms`, `half`, `taken` (another probes), `granted` (we do) or `kept` (we still do)."""
    as_of_ms: int
    left_ms: int = 0
    successes: int = 0
    epoch: str = ""


@dataclass(frozen=True, slots=True)
class BreakerView:
    """A breaker that is not closed, as Redis judges it now."""

    origin: str
    state: StateName
    retry_after_ms: int
    """Until it may be probed."""
    successes: int
    openings: int
    """How often it opened since it was closed last."""
    since_ms: int
    """When it opened first."""
    prober: str
    """The worker whose probe is under way."""

    def to_json(self) -> dict[str, Any]:
        return {
            "origin": self.origin,
            "state": self.state.upper().replace("-", "_"),
            "retryAfterMs": self.retry_after_ms,
            "successes": self.successes,
            "openings": self.openings,
            "openSince": utc(self.since_ms),
            "prober": self.prober or None,
        }


class SharedBreakers:
    def __init__(
        self, client: Client, *, rules: BreakerRules = RULES, permit_ms: int = PERMIT_MS, now_ms: str = ""
    ) -> None:
        self.client = client
        self.now_ms = now_ms
        self.permit_ms = permit_ms
        self._rules = rules

    async def open(self, origin: str, worker: str, *, for_ms: int) -> Shared:
        """We found it failing. The first to find out has said for how long."""
        return await self._call("open", origin, worker, open_ms=for_ms)

    async def ask(self, origin: str, worker: str) -> Shared:
        """May we probe it? `granted` is a lease of `permit_ms`."""
        return await self._call("ask", origin, worker)

    async def renew(self, origin: str, worker: str, epoch: str) -> Shared:
        """Our probe is still under way."""
        return await self._call("renew", origin, worker, epoch)

    async def judge(self, origin: str, worker: str, epoch: str, *, ok: bool) -> Shared:
        """What came of our probe. Without effect if another worker has the permit by now."""
        return await self._call("success" if ok else "failure", origin, worker, epoch)

    async def release(self, origin: str, worker: str, epoch: str) -> Shared:
        """We did not probe after all."""
        return await self._call("release", origin, worker, epoch)

    async def reset(self, origin: str) -> None:
        """Close it everywhere, whatever its endpoint does."""
        if origin:
            await self._call("reset", origin)

    async def reset_all(self) -> None:
        await self._call("reset", "")

    async def _call(
        self, verb: str, origin: str, worker: str = "", epoch: str = "", open_ms: int | None = None
    ) -> Shared:
        s = script("breaker")
        opened = self._rules.open_ms if open_ms is None else open_ms
        needed = self._rules.successes_to_close
        arguments: list[str | int] = [self.now_ms, verb, origin, worker, epoch]
        arguments += [opened, self.permit_ms, needed, IDLE_MS, MOST_ORIGINS]
        tag, as_of, left, successes, granted = await s(self.client, s.keys_of(FleetKeys), arguments)
        return Shared(tag, int(as_of), int(left), int(successes), granted)

    async def all(self) -> tuple[int, list[BreakerView]]:
        """Redis's clock, and every breaker that is not closed, by its origin."""
        # The clock first: what changes in between is then newer than the time that we give it.
        now_ms = int(self.now_ms) if self.now_ms else await Registry(self.client).clock_ms()
        with translated():
            records = await self.client.hgetall(FleetKeys.breakers)
        return now_ms, [self._view(origin, record, now_ms) for origin, record in sorted(records.items())]

    def _view(self, origin: str, record: str, now_ms: int) -> BreakerView:
        until, successes, prober, _, deadline, since, openings = record.split(SEP)
        left_ms = int(until) - now_ms
        if left_ms > max(self._rules.open_ms, LONGEST_OPEN_MS):
            left_ms = self._rules.open_ms
        return BreakerView(
            origin=origin,
            state="open" if left_ms > 0 else "half-open",
            retry_after_ms=max(left_ms, 0),
            successes=int(successes),
            openings=int(openings),
            since_ms=int(since),
            prober=prober if int(deadline) > now_ms else "",
        )


def heard(message: str) -> tuple[str, Shared]:
    """A message of `fleet:breaker`: whose breaker ('' for all) and what became of it."""
    origin, tag, as_of, left, successes = message.split(SEP)
    return origin, Shared(tag, int(as_of), int(left), int(successes))
