"""The state of the fleet on one screen, and what is wrong with it in words."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from fleet.operate import views
from fleet.operate.behind_breakers import Blocked, blocked
from fleet.operate.views import AskDepths, QueueNow
from fleet.state import observe, present
from fleet.state.connect import Client
from fleet.state.observe import LeaseView, PoolView, ServerView
from fleet.state.registry import ConfigRevision
from fleet.words import number, span

_OLD_S = 600.0
_NAMED = 5
"""How many are named of the origins that are left alone, and of the pools behind each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    leader: LeaseView
    config: ConfigRevision | None
    records: list[dict[str, Any]]
    pools: list[PoolView]
    queues: list[QueueNow]
    servers: list[ServerView]
    refused: str = ""
    """What Redis answers to writes, if it takes none. What it knows about processes is then as old as the refusals."""
    blocked: list[Blocked] = field(default_factory=list)
    """Origins whose circuit breakers are not closed."""
    problems: list[str] = field(default_factory=list)

    @property
    def roles(self) -> Counter[str]:
        return Counter(str(record.get("role")) for record in self.records)

    @property
    def is_off(self) -> bool:
        """Every coordinator was started with MESSAGE_ROUTER_ENABLED=false."""
        return is_off(self.records)

    @property
    def waiting(self) -> int:
        """Messages at the sources that nobody has taken yet."""
        return sum(queue.depth.waiting for queue in self.queues if queue.depth)

    @property
    def invisible(self) -> int:
        """Messages at the sources that were taken, or wait for a time."""
        return sum(queue.depth.invisible for queue in self.queues if queue.depth)

    @property
    def tracked(self) -> int:
        return sum(queue.view.tracked for queue in self.queues)

    @property
    def delivering(self) -> int:
        return sum(pool.leases for pool in self.pools)

    @property
    def oldest_s(self) -> float:
        return max((queue.depth.oldest_s or 0.0 for queue in self.queues if queue.depth), default=0.0)

    def to_json(self) -> dict[str, Any]:
        return {
            "leader": self.leader.owner or None,
            "epoch": self.leader.epoch if self.leader.owner else None,
            "configRevision": self.config.revision if self.config else None,
            "processes": dict(self.roles),
            "backlog": self.waiting,
            "invisible": self.invisible,
            "tracked": self.tracked,
            "delivering": self.delivering,
            "oldestSeconds": round(self.oldest_s, 1),
            "queues": {queue.view.name: views.queue_json(queue) for queue in self.queues},
            "pools": {pool.code: views.pool_json(pool) for pool in self.pools},
            "circuitBreakers": [one.to_json() for one in self.blocked],
            "redisRefuses": self.refused or None,
            "problems": self.problems,
        }


def is_off(records: list[dict[str, Any]]) -> bool:
    enabled = [record.get("enabled", True) for record in records if record.get("role") == "coordinator"]
    return bool(enabled) and not any(enabled)


async def status(client: Client, *, depths: AskDepths = views.queue_depths, look_behind: bool = True) -> Status:
    """`look_behind`: also say which pools wait behind circuit breakers, which means looking at messages."""
    config, router = await views.configuration(client)
    records = await present.processes(client)
    pools = await observe.pools(client)
    holding = [pool.code for pool in pools if pool.messages] if look_behind else None
    found = Status(
        leader=await observe.leader(client),
        config=config,
        records=records,
        pools=pools,
        queues=await views.queues_now(client, router, depths=depths, records=records),
        servers=await observe.servers(client),
        refused=await present.refused(client),
        blocked=await blocked(client, router, holding),
    )
    found.problems.extend(problems(found))
    return found


def problems(now: Status) -> list[str]:
    """What an operator should look at, the most serious first."""
    found = [present.in_words(now.refused)] if now.refused else []
    found += _of_processes(now)
    for server in now.servers:
        if server.is_nearly_full:
            found.append("Redis is nearly full: nothing more is taken from the queues until messages are delivered")
        if server.policy and server.policy != "noeviction":
            found.append(f"Redis may throw messages away: its maxmemory-policy is {server.policy}, not noeviction")
    found += [_of_blocked(one) for one in now.blocked[:_NAMED]]
    if more := len(now.blocked[_NAMED:]):
        others = number(more, "other circuit breaker is", "other circuit breakers are")
        found.append(f"{others} not closed either (see fleet breakers)")
    for queue in now.queues:
        found += _of_queue(queue, may_be_owned=now.roles["coordinator"] > 0 and not now.is_off and not now.refused)
    for pool in now.pools:
        found += _of_pool(pool)
    return found


def _of_processes(now: Status) -> list[str]:
    found = []
    if now.config is None:
        found.append("no configuration is in force: start a syncer")
    elif not now.roles["syncer"]:
        found.append("no syncer is running: changes of the configuration are not followed")
    for record in now.records:
        if record.get("differs"):
            leader = record.get("follows") or "the syncer that leads"
            text = f"{record['name']} stands by and has another configuration than {leader}, whose is in force"
            found.append(f"{text}: {record['differs']}")
    if not now.roles["coordinator"]:
        found.append("no coordinator is running: nothing is taken from the queues, nothing is acknowledged")
    elif now.is_off:
        found.append("the router is switched off (MESSAGE_ROUTER_ENABLED=false): nothing is taken from the queues")
    elif not now.leader.owner and not now.refused:
        found.append("no coordinator leads at the moment")
    if not now.roles["worker"]:
        found.append("no worker is running: nothing is delivered")
    found += [f"{record['name']} cannot reach Redis" for record in now.records if record.get("redisAvailable") is False]
    return found


def _of_blocked(one: Blocked) -> str:
    breaker = one.breaker
    times = f", opened {breaker.openings} times" if breaker.openings > 1 else ""
    text = f"{breaker.origin} fails: its circuit breaker is {breaker.state} (not closed for {span(one.since_s)}{times})"
    if breaker.state == "open":
        text += f", next probe in {span(breaker.retry_after_ms / 1000)}"
    elif breaker.prober:
        text += f", {breaker.prober} probes it now"
    else:
        text += ", the next message for it is a probe"
    if one.pools:
        at_least = "" if one.is_whole else "at least "
        return f"{text}; behind it: " + _some(
            [f"pool {code} ({at_least}{number(n, 'message')})" for code, n in one.pools.items()]
        )
    if one.perhaps:
        return f"{text}; behind it, perhaps: {_some([f'pool {code}' for code in one.perhaps])}"
    return text


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _of_queue(queue: QueueNow, *, may_be_owned: bool) -> list[str]:
    name, found = queue.view.name, []
    if queue.error:
        found.append(f"queue {name} cannot be read: {queue.error}")
    if may_be_owned and not queue.view.owner:
        found.append(f"queue {name} has no owner at the moment")
    if queue.view.dead:
        found.append(f"queue {name} has {number(queue.view.dead, 'dead letter')}")
    oldest_s = queue.depth.oldest_s if queue.depth is not None else None
    if oldest_s is not None and oldest_s > _OLD_S:
        found.append(f"the oldest message of queue {name} is {span(oldest_s)} old")
    return found


def _of_pool(pool: PoolView) -> list[str]:
    holds = number(pool.messages, "message")
    if pool.settings.draining:
        # By hand or because it is no longer configured: `fleet explain` of a message says which.
        return [f"pool {pool.code} drains and takes nothing new, it holds {holds}"] if pool.messages else []
    if pool.paused:
        return [f"pool {pool.code} is paused with {holds}"]
    if pool.messages >= pool.settings.capacity:
        return [f"pool {pool.code} is full: its endpoints are slower than its queues"]
    return []
