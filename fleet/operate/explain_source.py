"""What keeps a message, or a group, that is still in its queue from being taken."""

from __future__ import annotations

from fleet.config.router import QueueConfig, RouterConfig
from fleet.delivery.origin import origin_of
from fleet.errors import FleetError
from fleet.message import DEFAULT_POOL
from fleet.operate.explanation import Explanation
from fleet.operate.status import is_off
from fleet.sources.adapter import AtSource
from fleet.sources.open import adapter_for
from fleet.state import groups, observe, present
from fleet.state.breakers import SharedBreakers
from fleet.state.connect import Client
from fleet.state.registry import Registry
from fleet.words import at, moment, number


def can_be_looked_into(queue: QueueConfig) -> bool:
    """Whether its messages can be inspected without receiving them."""
    adapter = adapter_for(queue.uri)
    return adapter is not None and adapter.look is not None


async def look(
    client: Client, config: RouterConfig, subject: str, *, pool: str | None, now_ms: int
) -> Explanation | None:
    """None if no queue that can be looked into has it."""
    for queue in sorted(config.queues, key=lambda queue: queue.name):
        adapter = adapter_for(queue.uri)
        if adapter is None or adapter.look is None:
            continue
        try:
            found = await adapter.look.find(client, adapter.parse(queue.uri), subject)
        except FleetError as error:
            return Explanation(subject, "UNKNOWN", f"queue {queue.name} to be readable", None, [f"{error}."])
        if found is not None and pool in (None, pool_of(config, found)):
            return await _explain(client, config, subject, queue.name, found, now_ms)
    return None


def pool_of(config: RouterConfig, found: AtSource) -> str:
    """The pool that the coordinator would put it in."""
    code = found.message.pool_code if found.message is not None else ""
    return code if config.pool(code) is not None else DEFAULT_POOL


async def owner_of(client: Client, queue: str) -> str:
    (lease,) = await observe.owners(client, [queue])
    return lease.owner


async def breaker_of(client: Client, target: str, *, now_ms: str = "") -> list[str]:
    """A sentence on the circuit breaker of its endpoint, if that is not closed."""
    origin = origin_of(target)
    asked_ms, breakers = await SharedBreakers(client, now_ms=now_ms).all()
    for breaker in breakers:
        if breaker.origin == origin and breaker.state == "open":
            return [
                f"The circuit breaker of {origin} is open, and will be probed {at(asked_ms + breaker.retry_after_ms)}."
            ]
        if breaker.origin == origin:
            return [f"The circuit breaker of {origin} is half-open: one request at a time goes out."]
    return []


async def _explain(
    client: Client, config: RouterConfig, subject: str, queue: str, found: AtSource, now_ms: int
) -> Explanation:
    which = found.message.id if found.message is not None else found.broker_id
    details = [f"Message {which} is in queue {queue}" + (f", in group {found.group}." if found.group else ".")]
    if found.message is not None:
        details += await breaker_of(client, found.message.mediation_target)
    if found.ahead:
        # Its queue shows a message of a group only after the older ones.
        others = number(found.ahead, "older message")
        details.append(
            f"It is behind {others} of its group; the first is {found.head_id} (see fleet explain {found.head_id})."
        )
        hidden = found.head_visible_at_ms > now_ms
        if hidden:
            why = "under way" if found.head_leased else "delayed"
            details.append(f"The first is {why}, and not shown again before {moment(found.head_visible_at_ms)}.")
        until = found.head_visible_at_ms if hidden else None
        waits_for = f"message {found.head_id}, older in its group"
        return Explanation(subject, "BEHIND_AT_SOURCE", waits_for, until, details, behind=found.head_id)
    if found.visible_at_ms > now_ms:
        if found.leased:
            details.append("It was taken, but nobody tracks it: its coordinator is about to, or has died.")
            return Explanation(subject, "INVISIBLE", "its visibility timeout to end", found.visible_at_ms, details)
        details.append("It was sent with a delay, or given back with one after a failure.")
        return Explanation(subject, "DELAYED", "its delay to end", found.visible_at_ms, details)
    return await _visible(client, config, subject, queue, found, details)


async def _visible(
    client: Client, config: RouterConfig, subject: str, queue: str, found: AtSource, details: list[str]
) -> Explanation:
    revision = await Registry(client).revision()
    owner = await owner_of(client, queue)
    if not owner and is_off(await present.processes(client)):
        details.append("The router is switched off: every coordinator runs with MESSAGE_ROUTER_ENABLED=false.")
        return Explanation(subject, "NO_COORDINATOR", "the router to be switched on", None, details)
    if not owner:
        details.append(f"Nobody owns queue {queue}: no coordinator is alive, or none can open it.")
        return Explanation(subject, "NO_COORDINATOR", f"a coordinator to own queue {queue}", None, details)
    details.append(f"Queue {queue} is owned by {owner}.")
    if found.message is None:
        details.append("Its body is not a message: it goes to the dead letters.")
        return Explanation(subject, "AT_SOURCE", f"{owner} to poll it", None, details)
    code, asked = pool_of(config, found), found.message.pool_code
    if asked and asked != code:
        details.append(f"Its pool {asked} is not configured: it goes to {code}.")
    pool = await groups.pool_now(client, code)
    if pool is None:
        details.append(f"Pool {code} is not in Redis (configuration {revision or 'none'}).")
        return Explanation(subject, "UNKNOWN_POOL", "the syncer to publish the configuration", None, details)
    if pool.settings.draining:
        by = "by hand (`fleet pool drain`)" if pool.by_hand else "as it is no longer configured"
        details.append(f"Pool {code} drains, {by}: it takes nothing new.")
        return Explanation(subject, "DRAINING", f"pool {code} to take messages again", None, details)
    if pool.messages >= pool.settings.capacity:
        holds = number(pool.messages, "message")
        details.append(f"Pool {code} is full: it holds {holds}, its capacity is {pool.settings.capacity}.")
        if pool.paused:
            details.append("It is paused by an operator.")
        return Explanation(subject, "POOL_FULL", f"room in pool {code}", None, details)
    details.append(f"Pool {code} has room for it.")
    return Explanation(subject, "AT_SOURCE", f"{owner} to poll it, which should be at once", None, details)
