"""What is done to the fleet, but for what people do (`operators.py`); `heal` ends whatever of all that lasts."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.simulation.fault import CARRIED_OUT, Fault, fault
from tests.simulation.network import FATES, Host, Weather
from tests.simulation.operators import resume, undrain

if TYPE_CHECKING:
    from tests.simulation.world import World

LATEST_S = 13.0
"""What was on its way to a server, or waits at a frozen one, is done by then."""

_REFUSALS = {
    "readonly": "READONLY You can't write against a read only replica.",
    "misconf": "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
    "noreplicas": "NOREPLICAS Not enough good replicas to write.",
    "busy": "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
}


# Processes -------------------------------------------------------------------------------------------


def _some(world: World, chance: random.Random, role: str) -> str:
    names = world.fleet.names(role)
    return chance.choice(names) if names else ""


def _kill(role: str) -> Fault:
    def kill(world: World, chance: random.Random) -> str:
        name, again_after_s = _some(world, chance, role), chance.choice((0.3, 2.0, 8.0))
        world.fleet.kill(name, again_after_s=again_after_s)
        return f"{name}, again after {again_after_s} s"

    return kill


def _stop(role: str) -> Fault:
    def stop(world: World, chance: random.Random) -> str:
        name, for_s = _some(world, chance, role), chance.choice((0.3, 2.0, 6.0, 14.0, 22.0))
        process = world.fleet.process(name)
        if not process.is_dead:
            world.loop.stop_process(process)
            world.loop.later(for_s, world.loop.continue_process, process)
        return f"{name} for {for_s} s"

    return stop


def _end(role: str) -> Fault:
    def end(world: World, chance: random.Random) -> str:
        name = _some(world, chance, role)
        world.fleet.end(name, again_after_s=1.0)
        return name

    return end


for _role in ("worker", "coordinator", "syncer"):
    CARRIED_OUT[f"kill {_role}"] = _kill(_role)
    CARRIED_OUT[f"stop {_role}"] = _stop(_role)
    CARRIED_OUT[f"end {_role}"] = _end(_role)


@fault("kill all coordinators")
def _kill_all_coordinators(world: World, chance: random.Random) -> str:
    for_s = chance.choice((5.0, 20.0, 45.0))
    for name in world.fleet.running("coordinator"):
        world.fleet.kill(name, again_after_s=for_s)
    return f"for {for_s} s"


@fault("add worker")
def _add_worker(world: World, chance: random.Random) -> str:
    name = f"worker{len(world.fleet.names('worker')) + 1}"
    world.fleet.start(name)
    return name


# Redis -----------------------------------------------------------------------------------------------


@fault("redis away")
def _redis_away(world: World, chance: random.Random) -> str:
    for_s = chance.choice((0.3, 2.0, 8.0, 35.0))
    world.redis.go_away()
    world.until(for_s, world.redis.come_back)
    return f"for {for_s} s"


@fault("redis frozen")
def _redis_frozen(world: World, chance: random.Random) -> str:
    for_s = chance.choice((0.4, 3.0, 12.0))
    world.redis.is_frozen = True
    world.until(for_s, world.redis.thaw)
    return f"for {for_s} s"


@fault("redis restarts")
def _redis_restarts(world: World, chance: random.Random) -> str:
    """With all it had, except its script cache."""
    world.redis.go_away()
    world.redis.store.forget_scripts()
    world.until(0.5, world.redis.come_back)
    return ""


@fault("signals deaf")
def _signals_deaf(world: World, chance: random.Random) -> str:
    """A silent middlebox: the connections look alive and carry nothing."""
    name, for_s = _some(world, chance, ""), chance.choice((5.0, 30.0))
    deaf = [one for one in world.redis.subscriptions if one.owner == name]
    for one in deaf:
        one.is_deaf = True
    world.until(for_s, lambda: world.redis.break_subscriptions(name))
    return f"of {name} for {for_s} s"


@fault("redis full")
def _redis_full(world: World, chance: random.Random) -> str:
    for_s = chance.choice((2.0, 10.0))
    store = world.redis.store
    store.full = True
    world.until(for_s, lambda: setattr(store, "full", False))
    return f"for {for_s} s"


@fault("failover")
def _failover(world: World, chance: random.Random) -> str:
    """To a replica that had not heard of the last writes."""
    if world.has_own_queues:
        return "not with queues of our own, which would lose what they alone hold"
    lag_s, for_s = chance.choice((0.01, 0.3, 2.0)), chance.choice((0.2, 1.5))
    kept = world.redis.store.snapshot()

    def fail_over() -> None:
        world.redis.go_away()
        world.redis.store.restore(kept)
        world.redis.store.forget_scripts()
        world.forgets()
        world.until(for_s, world.redis.come_back)

    world.loop.later(lag_s, fail_over)
    return f"{lag_s} s are lost, away for {for_s} s"


@fault("flush")
def _flush(world: World, chance: random.Random) -> str:
    if world.has_own_queues:
        return "not with queues of our own, which would lose what they alone hold"
    world.redis.store.wipe()
    world.forgets()
    return ""


def _refuse(kind: str) -> Fault:
    def refuse(world: World, chance: random.Random) -> str:
        for_s = chance.choice((0.3, 3.0, 10.0))
        world.redis.refuses = _REFUSALS[kind]
        world.until(for_s, lambda: setattr(world.redis, "refuses", ""))
        return f"for {for_s} s"

    return refuse


for _refusal in _REFUSALS:
    CARRIED_OUT[_refusal] = _refuse(_refusal)


# The network -----------------------------------------------------------------------------------------


def _bad_weather(world: World, chance: random.Random, host: str) -> str:
    process = chance.choice(["", *world.fleet.names()])
    fates = tuple(chance.sample(FATES, chance.randint(1, len(FATES))))
    weather = Weather(process, host, chance.choice((0.05, 0.3, 0.8)), fates)
    for_s = chance.choice((1.0, 5.0, 12.0))
    world.network.weather.append(weather)
    world.until(for_s, lambda: world.clears(weather))
    return f"{process or 'everybody'} and {host}: {weather.share:.0%} {', '.join(fates)}, for {for_s} s"


@fault("lossy redis")
def _lossy_redis(world: World, chance: random.Random) -> str:
    return _bad_weather(world, chance, "redis")


@fault("lossy queue")
def _lossy_queue(world: World, chance: random.Random) -> str:
    return _bad_weather(world, chance, chance.choice(world.scenario.queues).name)


@fault("cut off")
def _cut_off(world: World, chance: random.Random) -> str:
    process = chance.choice(world.fleet.names())
    host = chance.choice(["", "redis", *(queue.name for queue in world.scenario.queues)])
    for_s = chance.choice((0.5, 4.0, 15.0, 30.0))
    weather = Weather(process, host, 1.0, FATES, is_cut=True)
    world.network.weather.append(weather)
    world.redis.break_subscriptions(process)
    world.until(for_s, lambda: world.clears(weather))
    return f"{process} from {host or 'everything'} for {for_s} s"


# Queues and clocks -----------------------------------------------------------------------------------


@fault("queue away")
def _queue_away(world: World, chance: random.Random) -> str:
    name, for_s = chance.choice(world.scenario.queues).name, chance.choice((1.0, 8.0, 30.0))
    broker = world.brokers.get(name)
    if broker is not None:
        broker.is_away = True
        broker.shake()
        world.until(for_s, lambda: setattr(broker, "is_away", False))
    return f"{name} for {for_s} s"


@fault("queue shaken")
def _queue_shaken(world: World, chance: random.Random) -> str:
    name = chance.choice(world.scenario.queues).name
    if name in world.brokers:
        world.brokers[name].shake()
    return name


@fault("lapse")
def _lapse(world: World, chance: random.Random) -> str:
    """No owner of a queue does anything for longer than the queue's visibility timeout."""
    for_s = max(queue.visibility_s for queue in world.scenario.queues) * chance.choice((1.1, 1.5))
    for name in world.fleet.running("coordinator"):
        world.loop.stop_process(world.fleet.process(name))
        world.loop.later(for_s, world.loop.continue_process, world.fleet.process(name))
    return f"for {for_s:.1f} s"


_STEPS_MS = (-3_600_000.0, -60_000.0, -5_000.0, -300.0, 300.0, 5_000.0, 60_000.0, 3_600_000.0)


@fault("redis clock")
def _redis_clock(world: World, chance: random.Random) -> str:
    step_ms = chance.choice(_STEPS_MS)
    world.redis.clock_offset_ms += step_ms
    if step_ms < 0:
        world.excuses.stepped_back = world.loop.now_s, -step_ms / 1000
    if step_ms > 0:
        # Permits and leases end before their time. A step back ends none, and passes no limit.
        world.excuses.forgot_s = world.excuses.ended_s = world.loop.now_s
        world.excuses.late_ms += step_ms
        world.excuses.owned_twice |= step_ms >= world.scenario.ttl_ms / 3
    return f"steps by {step_ms / 1000} s"


@fault("queue clock")
def _queue_clock(world: World, chance: random.Random) -> str:
    name, step_ms = chance.choice(world.scenario.queues).name, chance.choice(_STEPS_MS[1:-1])
    if name in world.brokers:
        world.brokers[name].clock_offset_ms += step_ms
        world.excuses.late_ms += max(0.0, -step_ms)
    elif name.startswith("sqlite"):
        # Its clock is that of its machine, and so of the processes on it.
        for process in world.fleet.names():
            world.fleet.process(process).wall_offset_ms += step_ms
        world.producer.wall_offset_ms += step_ms
    return f"of {name} steps by {step_ms / 1000} s"


@fault("process clock")
def _process_clock(world: World, chance: random.Random) -> str:
    name, step_ms = _some(world, chance, ""), chance.choice(_STEPS_MS)
    world.fleet.process(name).wall_offset_ms += step_ms
    return f"of {name} steps by {step_ms / 1000} s"


# Endpoints -------------------------------------------------------------------------------------------


@fault("mood")
def _mood(world: World, chance: random.Random) -> str:
    endpoint = chance.choice(list(world.endpoints.by_origin.values()))
    for_s = chance.choice((1.0, 6.0, 20.0))
    mood = chance.choice(("slow", "500", "no", "429", "reset", "hangs", "fences", "half"))
    endpoint.mood = mood  # type: ignore[assignment]
    world.until(for_s, lambda: world.recovers(endpoint))
    return f"{endpoint.origin} is {mood} for {for_s} s"


def heal(world: World) -> None:
    """End whatever lasts. What stays sick stays so for a while longer."""
    world.network.weather.clear()
    for host in hosts(world):
        host.is_away = False
        host.thaw()
    world.redis.refuses = ""
    world.redis.store.full = False
    world.redis.break_subscriptions()
    for endpoint in world.endpoints.by_origin.values():
        world.recovers(endpoint)
    # What was asked for may be done late, or come back with a failover.
    for wait_s in (0.0, LATEST_S):
        world.until(wait_s, lambda: _open_pools(world))


def _open_pools(world: World) -> None:
    for pool in world.scenario.pools:
        for act in (resume, undrain):
            world.operator(act, random.Random(0), pool.code)


def hosts(world: World) -> list[Host]:
    return [world.redis, *world.brokers.values()]
