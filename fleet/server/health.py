"""Is the fleet well? A judgement of its parts, for probes and people, with no name or secret in it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

from fleet.operate.status import Status
from fleet.state.warnings import WarningView

Level = Literal["HEALTHY", "WARNING", "DEGRADED"]

_GRAVITY: dict[Level, int] = {"HEALTHY": 0, "WARNING": 1, "DEGRADED": 2}


@dataclass(frozen=True, slots=True)
class Part:
    status: Level = "HEALTHY"
    detail: str = ""

    def to_json(self) -> dict[str, str]:
        return {"status": self.status, **({"detail": self.detail} if self.detail else {})}


@dataclass(frozen=True, slots=True)
class Health:
    parts: dict[str, Part]

    @property
    def status(self) -> Level:
        return max((part.status for part in self.parts.values()), key=_GRAVITY.__getitem__, default="HEALTHY")

    def to_json(self) -> dict[str, Any]:
        return {"status": self.status, "parts": {name: part.to_json() for name, part in self.parts.items()}}


STATE_AWAY = Health({"redis": Part("DEGRADED", "cannot be reached")})


def judge(now: Status, warnings: list[WarningView], open_breakers: int) -> Health:
    """A fleet that has nothing to do is well, and so is one whose endpoints say no."""
    return Health(
        {
            "redis": _redis(now),
            "configuration": _configuration(now),
            "coordinators": _coordinators(now),
            "workers": _workers(now),
            "queues": _queues(now),
            "pools": _pools(now),
            "circuitBreakers": Part("WARNING", f"{open_breakers} not closed") if open_breakers else Part(),
            "warnings": _warnings(warnings),
        }
    )


def _redis(now: Status) -> Part:
    if now.refused:
        return Part("DEGRADED", f"refuses writes: {now.refused.partition(' ')[0]}")
    if any(server.is_nearly_full for server in now.servers):
        return Part("DEGRADED", "nearly full: nothing more is taken from the queues")
    if any(server.policy not in ("", "noeviction") for server in now.servers):
        return Part("WARNING", "its maxmemory-policy may throw messages away")
    return Part()


def _configuration(now: Status) -> Part:
    if now.config is None:
        return Part("DEGRADED", "none is in force")
    return Part() if now.roles["syncer"] else Part("WARNING", "no syncer is running")


def _coordinators(now: Status) -> Part:
    if not now.roles["coordinator"]:
        return Part("DEGRADED", "none is running: nothing is taken from the queues")
    if now.is_off:
        return Part("WARNING", "the router is switched off: nothing is taken from the queues")
    return Part() if now.leader.owner else Part("WARNING", "none leads at the moment")


def _workers(now: Status) -> Part:
    if not now.roles["worker"]:
        return Part("DEGRADED", "none is running: nothing is delivered")
    away = sum(record.get("redisAvailable") is False for record in now.records)
    return Part("WARNING", f"{away} cannot reach Redis") if away else Part()


def _queues(now: Status) -> Part:
    unread = sum(bool(queue.error) for queue in now.queues)
    ownerless = 0 if now.is_off else sum(not queue.view.owner for queue in now.queues)
    found = [f"{unread} of {len(now.queues)} cannot be asked"] if unread else []
    found += [f"{ownerless} of {len(now.queues)} have no owner at the moment"] if ownerless else []
    return Part("WARNING", "; ".join(found)) if found else Part()


def _pools(now: Status) -> Part:
    full = sum(pool.messages >= pool.settings.capacity for pool in now.pools if not pool.settings.draining)
    paused = sum(pool.paused for pool in now.pools)
    found = [f"{full} of {len(now.pools)} are full"] if full else []
    found += [f"{paused} of {len(now.pools)} are paused"] if paused else []
    return Part("WARNING", "; ".join(found)) if found else Part()


def _warnings(warnings: list[WarningView]) -> Part:
    counts = Counter(warning.severity for warning in warnings)
    grave = [f"{counts[severity]} {severity}" for severity in ("CRITICAL", "ERROR") if counts[severity]]
    return Part("WARNING", f"nobody has acknowledged {' and '.join(grave)}") if grave else Part()
