"""Faults made of several at once: no single fault reaches these, and chance brings them together once in a thousand
seeds."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.simulation.fault import Fault

if TYPE_CHECKING:
    from tests.simulation.world import World


def _lapse_behind_a_head(world: World, chance: random.Random) -> str:
    """What waits for an endpoint that hangs is taken for lost by its queue: for longer than its visibility timeout, all
    coordinators stand still, are dead, or have no Redis. Newer messages come meanwhile, and then the head fails."""
    plan, now_s = world.scenario, world.loop.now_s
    wait_s, way = chance.choice((2.0, 5.0)), chance.choice(("stopped", "dead", "without Redis"))
    factor = chance.choice((1.1, 1.5))
    lapses_s = {queue.name: queue.visibility_s * factor for queue in plan.queues}
    returns = {pool.code for pool in plan.pools if pool.on_failure == "return"}
    sent_s = {group: [m.at_s - now_s for m in plan.messages if m.group == group.name] for group in plan.groups}
    fitting = [
        group
        for group, at_s in sent_s.items()
        if group.pool in returns
        and any(0 < at < wait_s for at in at_s)
        and any(wait_s < at < wait_s + lapses_s[group.queue] for at in at_s)
    ]
    group = chance.choice(fitting or plan.groups)
    endpoint, for_s = world.endpoints.by_origin[group.origin], lapses_s[group.queue]
    endpoint.mood = "hangs"

    def lapse() -> None:
        if way == "without Redis":
            world.redis.go_away()
            world.until(for_s, world.redis.come_back)
        for name in world.fleet.running("coordinator") if way != "without Redis" else ():
            process = world.fleet.process(name)
            if way == "dead":
                world.fleet.kill(name, again_after_s=for_s)
            else:
                world.loop.stop_process(process)
                world.loop.later(for_s, world.loop.continue_process, process)

    waiting = [m for m in plan.messages if m.group == group.name and now_s < m.at_s < now_s + wait_s]
    if waiting:
        endpoint.natures[waiting[0].id].refusals += 1
    world.until(wait_s, lapse)
    world.until(wait_s + for_s, lambda: world.recovers(endpoint))
    return f"{endpoint.origin} hangs, coordinators are {way} for {for_s:.1f} s"


CARRIED_OUT: dict[str, Fault] = {"lapse behind a head": _lapse_behind_a_head}
