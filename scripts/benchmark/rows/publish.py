"""How fast one producer fills the embedded queue: in batches of 500, and one message at a time."""

from __future__ import annotations

from dataclasses import dataclass

import uvloop

from benchmark.ground import Ground
from benchmark.house.fill import BATCH, fill_queue
from benchmark.house.house import house
from benchmark.rows.drain import source_depth
from benchmark.scenario import Measurement, Scenario

_COUNT = 100_000
_SINGLES = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Publish(Scenario):
    name: str = "publish"
    title: str = "Fleet, publishing into the embedded queue"

    def attempt(self, ground: Ground, _setting: str) -> Measurement:
        count, singles = ground.scaled(_COUNT), ground.scaled(_SINGLES)
        with house(ground) as home, source_depth(home.queue_uri) as depth:
            uri, groups, target = home.queue_uri, ground.groups, ground.sink.url
            batched_s = uvloop.run(fill_queue(uri, count=count, groups=groups, target=target))
            single_s = uvloop.run(
                fill_queue(uri, first=count, count=count + singles, groups=groups, target=target, batch=1)
            )
            stored = depth()
        problems = [] if stored == count + singles else [f"{stored} of {count + singles} messages in the queue"]
        return Measurement(
            value=count / batched_s,
            unit="published/s",
            problems=tuple(problems),
            note=f"in batches of {BATCH}; one by one {singles / single_s:,.0f}/s",
            details={"messages": count + singles, "one_by_one_per_s": round(singles / single_s)},
        )


SCENARIOS = (Publish(),)
