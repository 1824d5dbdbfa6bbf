"""Every key name that Fleet uses in Redis. No other file spells one.

Six families, one Cluster slot each: a pool, a source queue, a queue of our own, a topic with its subscriptions, the
broker's catalogue, the fleet. A script touches keys of
one family member only. `docs/redis.md` lists them with their type and what bounds them.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
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
"""Carries the prefix of the keys of a queue of our own that shows something, or will: if somebody waits for that."""
MOVED_CHANNEL = "fleet:moved"
"""Carries the prefix of the keys of a queue of our own in which something waits to be brought to another."""
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
        return f"{{q:{tag_of(self.name)}}}:{name}"

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


class MessageKeys(ABC):
    """Messages of our own that wait, and which of them are hidden: the same for a queue and for a subscription."""

    __slots__ = ()

    @property
    @abstractmethod
    def prefix(self) -> str:
        """What all keys begin with, and what a signal says of them."""

    @property
    def state(self) -> str:
        return self.prefix + "state"

    @property
    def bodies(self) -> str:
        return self.prefix + "bodies"

    @property
    def hidden(self) -> str:
        return self.prefix + "hidden"

    @property
    def ready(self) -> str:
        return self.prefix + "ready"

    @property
    def due(self) -> str:
        return self.prefix + "due"

    @property
    def shown(self) -> str:
        return self.prefix + "shown"

    @property
    def delayed(self) -> str:
        return self.prefix + "delayed"

    @property
    def fresh(self) -> str:
        return self.prefix + "fresh"

    @property
    def out(self) -> str:
        return self.prefix + "out"

    @property
    def seen(self) -> str:
        return self.prefix + "seen"

    @property
    def origins(self) -> str:
        return self.prefix + "origins"

    @property
    def refs(self) -> str:
        return self.prefix + "refs"

    @property
    def outboxes(self) -> str:
        return self.prefix + "outboxes"

    @property
    def outbox(self) -> str:
        """Prefix of the list of what goes to one other queue."""
        return self.prefix + "o:"

    @property
    def junk(self) -> str:
        """A set, and the prefix of what its members name."""
        return self.prefix + "junk"

    @property
    def group_list(self) -> str:
        """Prefix of the list of a group's messages."""
        return self.prefix + "g:"


@dataclass(frozen=True, slots=True)
class OwnQueueKeys(MessageKeys):
    """One partition of a queue that lives in Redis itself."""

    name: str
    partition: int = 0

    @property
    def prefix(self) -> str:
        return f"{{b:{tag_of(self.name)}:{self.partition}}}:"

    @property
    def bucket(self) -> str:
        """Prefix of the buckets that bound what is asked of it."""
        return self.prefix + "bucket:"

    @property
    def attempt(self) -> str:
        """Prefix of what askers may ask for again."""
        return self.prefix + "attempt:"

    @property
    def purging(self) -> str:
        """It was purged a moment ago."""
        return self.prefix + "purging"


def queue_of_prefix(prefix: str) -> str:
    """The queue of the SQS door whose keys begin so; '' for any other."""
    found = re.fullmatch(r"\{b:sqs/(.+):\d+\}:", prefix)
    return found[1] if found else ""


@dataclass(frozen=True, slots=True)
class TopicKeys(MessageKeys):
    """A topic: the bodies of what its subscriptions hold. Nothing stands in lanes of its own."""

    name: str

    @property
    def prefix(self) -> str:
        return f"{{t:{tag_of(self.name)}}}:"

    @property
    def subscription(self) -> str:
        """Prefix of its subscriptions' keys: the name and a colon stand behind it."""
        return self.prefix + "s:"


@dataclass(frozen=True, slots=True)
class SubscriptionKeys(MessageKeys):
    """A subscription: it lives beside its topic, which holds the bodies."""

    topic: str
    name: str

    @property
    def prefix(self) -> str:
        return f"{TopicKeys(self.topic).subscription}{tag_of(self.name)}:"

    @property
    def bodies(self) -> str:
        return TopicKeys(self.topic).bodies

    @property
    def refs(self) -> str:
        return TopicKeys(self.topic).refs


def tag_of(name: str) -> str:
    """A name as it stands in keys."""
    # A brace in the name would end the hash tag early and split the family over slots.
    return name.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")


class BrokerKeys:
    """What queues, topics and subscriptions of our own there are."""

    topics = "{broker}:topics"
    subscriptions = "{broker}:subscriptions"
    queues = "{broker}:queues"
    tasks = "{broker}:tasks"
    """What moves from a dead-letter queue, by that queue."""
    leaving = "{broker}:leaving"
    """Topics and subscriptions that are removed and may still hold something."""
    sweeper = "{broker}:sweeper"
    """The lease of the one process that looks for what others left undone with topics."""
    sqs_sweeper = "{broker}:sqs_sweeper"
    """Likewise with queues of the SQS door."""
    sqs_due = "{broker}:sqs_due"
    """Queues of which something is unfinished, and when to look at each."""
    sqs_tidy = "{broker}:sqs_tidy"
    """Every queue of the SQS door, and when it is tidied next."""


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
    "{t:*}:state",
    "{t:*}:s:*:state",
    "{broker}:*",
    "{fleet}:*",
)
"""Globs of the keys that may remain once everything is delivered and acked."""
