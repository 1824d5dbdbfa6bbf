"""Sends the messages of a scenario to their queues, and again until they are accepted."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from fleet.clock import SystemClock
from fleet.errors import FleetError
from fleet.message import Message, encode
from fleet.sources.base import Outgoing
from fleet.sources.own.source import OwnPublisher
from fleet.sources.sqlite.address import parse_address
from fleet.sources.sqlite.publisher import SqlitePublisher
from tests.simulation.redis import URL, SimulatedClient
from tests.simulation.scenario import MessagePlan

if TYPE_CHECKING:
    from tests.simulation.world import World


async def send(world: World, queue: str) -> None:
    """What the scenario has for this queue, each message when its time comes."""
    publish = await _publisher(world, queue)
    groups = {group.name: group for group in world.scenario.groups if group.queue == queue}
    for message in world.scenario.messages:
        if message.group in groups:
            await asyncio.sleep(max(0.0, message.at_s - world.loop.now_s))
            group = groups[message.group]
            body = encode(
                Message(
                    id=message.id,
                    mediation_target=f"{group.origin}/{message.id}",
                    pool_code=group.pool,
                    message_group_id=message.group,
                    high_priority=message.is_high,
                    dispatch_mode=group.mode,  # type: ignore[arg-type]
                )
            )
            await _until_sent(world, publish, message, body)


async def _until_sent(
    world: World, publish: Callable[[str, str, bytes], Coroutine[Any, Any, None]], message: MessagePlan, body: bytes
) -> None:
    world.checks.on_sent(message)  # first: it may be delivered before its producer hears that it was accepted
    while True:
        try:
            await publish(message.id, message.group, body)
        except FleetError:
            await asyncio.sleep(0.5)
            continue
        world.sent += 1
        return


async def _publisher(world: World, queue: str) -> Callable[[str, str, bytes], Coroutine[Any, Any, None]]:
    plan = next(plan for plan in world.scenario.queues if plan.name == queue)
    if plan.kind in ("sqlite", "own"):
        publisher: SqlitePublisher | OwnPublisher
        if plan.kind == "sqlite":
            address = parse_address(plan.uri)
            publisher = SqlitePublisher(path=address.path, queue=address.queue, clock=SystemClock())
            await publisher.open()
        else:
            publisher = OwnPublisher(queue=queue, redis_url=URL)
            publisher.attach(SimulatedClient(world.network, world.redis, world.loop))

        async def publish(id_: str, group: str, body: bytes) -> None:
            (refused,) = await publisher.publish([Outgoing(id_, body, group)])
            if refused is not None:
                raise FleetError(refused)

        return publish
    broker = world.brokers[queue]

    async def store(id_: str, group: str, body: bytes) -> None:
        broker.publish(group, body)

    return store
