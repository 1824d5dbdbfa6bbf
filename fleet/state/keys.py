"""Every key name that Fleet uses in Redis. No other file spells one.

Four families, one Cluster slot each: a pool, a source queue, a queue of our own, the fleet. A script touches keys of
one family member only. `docs/redis.md` lists them with their type and what bounds them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

WAKE_CHANNEL = "fleet:wake"
"""Carries the code of a pool with more work than its homes take, and which places in its order of workers are asked."""
POOL_WAKE_CHANNEL = "fleet:wake:"
"""Prefix of the channel of one pool, which its homes hear: `+` and how many lanes are ready, or after how many ms
something is due there."""
ROOM_CHANNEL = "fleet:room"
"""Carries the code of a pool that has room again, when a consumer waits for it."""
SETTLED_CHANNEL = "fleet:settled"
"""Carries the name of a queue whose settled list is no longer empty."""
CHANGED_CHANNEL = "fleet:changed"
"""Carries `config` for a new revision, `lease` when one was given back, `pool` and a code when its rules changed, or a
request to reload (`fleet/state/reload.py`)."""
OWN_QUEUE_CHANNEL = "fleet:queue"
"""Carries the name of a queue of our own that has something to show, or will have."""
BREAKER_CHANNEL = "fleet:breaker"
"""Carries an origin, and what became of its circuit breaker."""


@dataclass(frozen=True, slots=True)
class PoolKeys:
    """One pool: its lanes, who leases them, and what its workers have settled."""

    code: str

    def _key(self, name: str) -> str:
        return f"{{p:{self.code}}}:{name}"

    @property
    def settings(self) -> str:
        return self._key("settings")

    @property
    def ready(self) -> str:
        return self._key("ready")

    @property
    def entries(self) -> str:
        return self._key("entries")

    @property
    def leases(self) -> str:
        return self._key("leases")

    @property
    def owners(self) -> str:
        return self._key("owners")

    @property
    def later(self) -> str:
        return self._key("later")

    @property
    def in_place(self) -> str:
        return self._key("in_place")

    @property
    def away(self) -> str:
        return self._key("away")

    @property
    def away_lane(self) -> str:
        """Prefix of the list of what went back of a lane. `r` or `h` stands between it and the lane."""
        return self._key("a:")

    @property
    def high(self) -> str:
        return self._key("high")

    @property
    def rate(self) -> str:
        return self._key("rate")

    @property
    def failed(self) -> str:
        return self._key("failed")

    @property
    def tries(self) -> str:
        return self._key("tries")

    @property
    def epochs(self) -> str:
        return self._key("epochs")

    @property
    def outboxes(self) -> str:
        return self._key("outboxes")

    def outbox(self, worker: str) -> str:
        return self._key(f"o:{worker}")

    @property
    def regular_lane(self) -> str:
        """Prefix of the list of a lane's regular messages."""
        return self._key("g:")

    @property
    def high_lane(self) -> str:
        """Prefix of the list of a lane's high-priority messages."""
        return self._key("h:")


def keys_of_pool(code: str, names: Iterable[str]) -> list[str]:
    """The keys of a pool that have the name of their property, all at once: there are thousands to look at."""
    tag = f"{{p:{code}}}:"
    return [tag + name for name in names]


@dataclass(frozen=True, slots=True)
class QueueKeys:
    """One source queue: what was taken from it, and what came of that."""

    name: str

    def _key(self, name: str) -> str:
        return f"{{q:{_tag(self.name)}}}:{name}"

    @property
    def tracked(self) -> str:
        return self._key("tracked")

    @property
    def apps(self) -> str:
        return self._key("apps")

    @property
    def settled(self) -> str:
        return self._key("settled")

    @property
    def dead(self) -> str:
        return self._key("dead")

    @property
    def delayed(self) -> str:
        return self._key("delayed")

    @property
    def owner(self) -> str:
        return self._key("owner")


@dataclass(frozen=True, slots=True)
class OwnQueueKeys:
    """One partition of a queue that lives in Redis itself: its messages, and which of them are hidden."""

    name: str
    partition: int = 0

    def tag(self) -> str:
        """The queue's name as it stands in its keys, and in signals."""
        return _tag(self.name)

    def _key(self, name: str) -> str:
        return f"{{b:{self.tag()}:{self.partition}}}:{name}"

    @property
    def state(self) -> str:
        return self._key("state")

    @property
    def bodies(self) -> str:
        return self._key("bodies")

    @property
    def hidden(self) -> str:
        return self._key("hidden")

    @property
    def ready(self) -> str:
        return self._key("ready")

    @property
    def due(self) -> str:
        return self._key("due")

    @property
    def counts(self) -> str:
        return self._key("counts")

    @property
    def seen(self) -> str:
        return self._key("seen")

    @property
    def group_list(self) -> str:
        """Prefix of the list of a group's messages."""
        return self._key("g:")


def _tag(name: str) -> str:
    # A brace in the name would end the hash tag early and split the family over slots.
    return name.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")


class FleetKeys:
    """Keys of which the fleet has just one."""

    config = "{fleet}:config"
    leader = "{fleet}:leader"
    syncer = "{fleet}:syncer"
    """The lease of the one syncer whose configuration is in force."""
    feed = "{fleet}:feed"
    """The lease of the one driver that makes messages of jobs."""
    processes = "{fleet}:processes"
    beats = "{fleet}:beats"
    breakers = "{fleet}:breakers"
    """Every circuit breaker that is not closed, by its origin."""
    breakers_seen = "{fleet}:breakers_seen"
    queues = "{fleet}:queues"
    """Every queue that may have messages under way, even after it was taken out of the configuration."""
    pools = "{fleet}:pools"
    """Every pool that exists in Redis, configured or still draining."""
    pool_marks = "{fleet}:pool_marks"
    """The mark of each pool's secret (`known_pools.py`)."""
    warnings = "{fleet}:warnings"
    warning_times = "{fleet}:warning_times"
    warning_kinds = "{fleet}:warning_kinds"
    """Which warning counts the repeats of its kind: the one that nobody has acknowledged."""
    totals = "{fleet}:totals:"
    """Prefix of what all processes ever counted of one kind, including those that are gone."""
    tallied = "{fleet}:tallied:"
    """Prefix of the number of the last piece of one process's counters that is in the totals."""


FAMILIES = (
    "{p:*}:settings",
    "{p:*}:epochs",
    "{p:*}:rate",
    "{p:*}:failed",
    "{q:*}:owner",
    "{q:*}:dead",
    "{q:*}:delayed",
    "{b:*}:state",
    "{b:*}:seen",
    "{fleet}:*",
)
"""Globs of the keys that may remain once everything is delivered and acked."""
