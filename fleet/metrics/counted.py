"""What processes counted, as metrics: one process's, or the fleet's sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping

from fleet.metrics.counters import Counts, Key
from fleet.metrics.exposition import BOUNDS_S, POOL_BOUNDS_S, Exposition

HISTOGRAMS = {
    "delivery": ("fleet_delivery_seconds", "pool", "How long a delivery took."),
    "wait": ("fleet_wait_seconds", "pool", "From queued to claimed."),
    "redis_call": ("fleet_redis_call_seconds", "script", "How long a script call took, seen by its caller."),
}
"""What is counted as a histogram → the metric, its label, its help text."""
_QUEUES = {
    "received": "Messages taken from the queue.",
    "acked": "Messages acknowledged at the queue.",
    "nacked": "Messages given back to the queue.",
    "malformed": "Bodies that are not messages, kept as dead letters.",
}
_LEASES = {"leases_lost": "group", "queue_leases_lost": "queue", "leader_leases_lost": "leader"}
_JOBS = {
    "attempt": ("fleet_jobs_attempts_total", "outcome", "Deliveries of dispatch jobs by outcome."),
    "refused": ("fleet_jobs_claims_refused_total", "why", "Messages of jobs for which nothing was delivered."),
}
"""What a server's counts begin with → the metric, its label, its help text."""
_FEED = {
    "epochs": "Epochs that were published and marked.",
    "events": "Events that were fanned out.",
    "sent": "Jobs that were published.",
    "seen": "Jobs that were in the queue already, published before a crash.",
    "refused": "Jobs that no router would take.",
    "expired": "Jobs that expired before they were published.",
    "recovered": "Jobs that were lost, and those that went again with them.",
}
_RATE_LIMITED = "RATE_LIMITED"
_NO_OUTCOME = ("ms", _RATE_LIMITED)


def add_counted(
    page: Exposition,
    counted: Mapping[Key, Counts],
    *,
    pools: Collection[str] | None = None,
    queues: Collection[str] | None = None,
) -> None:
    """`pools`, `queues`: those that exist. So labels are bounded: what is gone is not shown, whatever was counted."""
    of_kind = _by_kind(counted)
    by_pool, by_queue, lost = of_kind("pool"), of_kind("queue"), Counter[str]()
    pools = sorted(by_pool if pools is None else pools)
    queues = sorted(by_queue if queues is None else queues)
    used = [code for code in pools if code in by_pool]
    outcomes = {
        f',outcome="{name}"': [(code, by_pool[code][name]) for code in used if name in by_pool[code]]
        for name in sorted({name for code in used for name in by_pool[code]}.difference(_NO_OUTCOME))
    }
    page.of_each("fleet_messages_total", "counter", "Deliveries by outcome.", "pool", outcomes)
    limited = {"": [(code, by_pool[code].get(_RATE_LIMITED, 0)) for code in used]}
    about_limited = "Groups that had to wait for the rate limit."
    page.of_each("fleet_pool_rate_limited_total", "counter", about_limited, "pool", limited)
    for name, (metric, label, about) in HISTOGRAMS.items():
        found = of_kind(name)
        shown = sorted(found if label != "pool" else found.keys() & set(pools))
        bounds_s = POOL_BOUNDS_S if label == "pool" else BOUNDS_S
        page.histograms(metric, about, label, ((of, found[of]) for of in shown), bounds_s=bounds_s)
    for name, about in _QUEUES.items():
        samples = [({"queue": queue}, by_queue.get(queue, {}).get(name, 0)) for queue in queues]
        page.family(f"fleet_queue_{name}_total", "counter", about, samples)
    for of_role in of_kind("process").values():
        lost.update({kind: of_role.get(name, 0) for name, kind in _LEASES.items()})
    page.family(
        "fleet_leases_lost_total", "counter", "Leases that their holder lost.",
        [({"kind": kind}, lost[kind]) for kind in _LEASES.values()],
    )  # fmt: skip
    of_process = of_kind("process")
    for begins, (metric, label, about) in _JOBS.items():
        jobs = [
            ({label: name.partition(".")[2]}, value)
            for name, value in sorted(of_process.get("server", {}).items())
            if name.startswith(f"{begins}.")
        ]
        page.family(metric, "counter", about, jobs)
    fed = of_process.get("feed", {})
    for name, about in _FEED.items():
        page.family(f"fleet_feed_{name}_total", "counter", about, [({}, fed[name])] if name in fed else [])


def _by_kind(counted: Mapping[Key, Counts]) -> Callable[[str], dict[str, Counts]]:
    found: dict[str, dict[str, Counts]] = {}
    for (kind, label), counts in counted.items():
        found.setdefault(kind, {})[label] = counts
    return lambda kind: found.get(kind, {})
