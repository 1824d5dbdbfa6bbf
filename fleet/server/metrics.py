"""The fleet's metrics, made of Redis and of what its processes counted (names and labels: CONTRACT section 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from fleet import views
from fleet.metrics import Exposition, Histogram
from fleet.server.breakers import BreakerBoard
from fleet.server.depths import Depths
from fleet.state import observe
from fleet.state.connect import Client
from fleet.state.observe import PoolView
from fleet.state.registry import Registry
from fleet.state.totals import Counter as Counted
from fleet.state.totals import forget, totals
from fleet.state.warnings import Warnings

_NO_OUTCOME = ("ms", "RATE_LIMITED")
_LEASES = {"leases_lost": "group", "queue_leases_lost": "queue", "leader_leases_lost": "leader"}
HISTOGRAMS = {"delivery": "pool", "wait": "pool", "redis_call": "script"}
"""What a heartbeat's `histograms` may hold: name → its label."""
_POOL_KINDS = frozenset({"pool", "delivery", "wait"})


async def exposition(client: Client, *, depths: Depths, breakers: BreakerBoard) -> str:
    page = Exposition()
    counted = await totals(client)
    await _pools(page, client, counted)
    await _queues(page, client, depths)
    await _processes(page, client, counted)
    await _rest(page, client, breakers)
    return page.text()


async def _pools(page: Exposition, client: Client, counted: Mapping[Counted, int]) -> None:
    pools = await observe.pools(client)
    # Labels have an end: pools that are gone are not shown, whatever is still counted of them.
    known = {pool.code for pool in pools}
    page.family("fleet_messages_total", "counter", "Deliveries by what came of them.", _outcomes(pools))
    histograms = _histograms(counted)
    for name, about in (("delivery", "How long a delivery took."), ("wait", "From queued to claimed.")):
        samples = [({"pool": code}, h) for code, h in sorted(histograms.get(name, {}).items()) if code in known]
        page.family(f"fleet_{name}_seconds", "histogram", about, samples)
    calls = [({"script": name}, h) for name, h in sorted(histograms.get("redis_call", {}).items())]
    page.family("fleet_redis_call_seconds", "histogram", "How long a script call took, seen by its caller.", calls)

    gauges = {
        "queued": ("Messages that wait.", [max(0, pool.held - pool.leases) for pool in pools]),
        "active": ("Deliveries under way.", [pool.leases for pool in pools]),
        "concurrency": ("Deliveries at a time, at most.", [pool.settings.concurrency for pool in pools]),
        "groups": ("Groups with messages.", [pool.leases + pool.ready + pool.later for pool in pools]),
    }
    for name, (about, values) in gauges.items():
        labelled = [({"pool": pool.code}, value) for pool, value in zip(pools, values, strict=True)]
        page.family(f"fleet_pool_{name}", "gauge", about, labelled)
    limited = [({"pool": pool.code}, pool.outcomes["RATE_LIMITED"]) for pool in pools]
    page.family("fleet_pool_rate_limited_total", "counter", "Claims that waited for the rate limit.", limited)


def _outcomes(pools: list[PoolView]) -> Iterator[tuple[dict[str, str], int]]:
    for pool in pools:
        for outcome, count in sorted(pool.outcomes.items()):
            if outcome not in _NO_OUTCOME:
                yield {"pool": pool.code, "outcome": outcome}, count


def _histograms(counted: Mapping[Counted, int]) -> dict[str, dict[str, Histogram]]:
    places: dict[tuple[str, str], dict[int, int]] = {}
    for (kind, label, place), value in counted.items():
        if kind in HISTOGRAMS:
            places.setdefault((kind, label), {})[int(place)] = value
    found: dict[str, dict[str, Histogram]] = {}
    for (kind, label), values in places.items():
        found.setdefault(kind, {})[label] = Histogram.from_places(values)
    return found


async def _queues(page: Exposition, client: Client, depths: Depths) -> None:
    config = (await views.configuration(client))[1]
    queues = await views.queues_now(client, config, depths=depths)
    for name, about in (
        ("received", "Messages taken from the queue."),
        ("acked", "Messages acknowledged at the queue."),
        ("nacked", "Messages given back to the queue."),
    ):
        samples = [({"queue": queue.view.name}, queue.view.counts[name]) for queue in queues]
        page.family(f"fleet_queue_{name}_total", "counter", about, samples)
    tracked = [({"queue": queue.view.name}, queue.view.tracked) for queue in queues]
    page.family("fleet_queue_tracked", "gauge", "Messages taken and not acknowledged yet.", tracked)
    # A queue that does not say how old its oldest message is has no sample: 0 would be a lie.
    oldest = [({"queue": queue.view.name}, queue.depth.oldest_s) for queue in queues if queue.depth is not None]
    page.family("fleet_queue_oldest_seconds", "gauge", "Age of the oldest message at the source.", oldest)


async def _processes(page: Exposition, client: Client, counted: Mapping[Counted, int]) -> None:
    lost: Counter[str] = Counter(dict.fromkeys(_LEASES.values(), 0))
    for (kind, _, name), value in counted.items():
        if kind == "process" and name in _LEASES:
            lost[_LEASES[name]] += value
    page.family(
        "fleet_leases_lost_total", "counter", "Leases that ended against their holder's will.",
        [({"kind": kind}, value) for kind, value in lost.items()],
    )  # fmt: skip
    roles = Counter(str(record.get("role")) for record in await Registry(client).processes())
    page.family(
        "fleet_processes", "gauge", "Processes that live.", [({"role": r}, n) for r, n in sorted(roles.items())]
    )
    leader = await observe.leader(client)
    page.family("fleet_leader", "gauge", "1 while a coordinator leads.", [({}, int(bool(leader.owner)))])
    epochs: dict[str, int] = {"leader": int(leader.epoch or 0)}
    config = (await views.configuration(client))[1]
    owners = await observe.owners(client, [queue.name for queue in config.queues])
    epochs["queue"] = max((int(owner.epoch or 0) for owner in owners), default=0)
    page.family(
        "fleet_lease_epoch", "gauge", "The highest epoch granted.", [({"kind": k}, e) for k, e in epochs.items()]
    )


async def _rest(page: Exposition, client: Client, breakers: BreakerBoard) -> None:
    is_open = [({"origin": str(breaker["origin"])}, 1) for breaker in await breakers.list()]
    page.family("fleet_breaker_open", "gauge", "1 for each breaker that is not closed.", is_open)
    registry = Registry(client)
    config = await registry.config()
    # Nothing where there is none: an age of 0 would say that all is well.
    age: list[tuple[dict[str, str], float]] = []
    if config is not None:
        age.append(({}, max(0.0, (await registry.clock_ms() - config.checked_ms) / 1000)))
    page.family("fleet_config_age_seconds", "gauge", "Since the syncer last confirmed the configuration.", age)
    severities = Counter(warning.severity for warning in await Warnings(client).list(unacknowledged=True))
    samples = [({"severity": s}, severities[s]) for s in ("CRITICAL", "ERROR", "WARN", "INFO")]
    page.family("fleet_warnings", "gauge", "Warnings that nobody has acknowledged.", samples)


async def forget_what_is_gone(client: Client) -> None:
    """Totals of pools and queues that nobody has any more."""
    registry = Registry(client)
    # First what was counted: a pool that is new in between is none that is gone.
    counted = await totals(client)
    pools = await registry.pools()
    queues = await registry.queues()
    queues_known = set(queues) | {queue.name for queue in (await views.configuration(client))[1].queues}
    if not pools:
        # Redis is new, or wiped: the syncer will be back.
        return
    gone = [c for c in counted if c[0] in _POOL_KINDS and c[1] not in pools]
    gone += [c for c in counted if c[0] == "queue" and c[1] not in queues_known]
    await forget(client, gone)
