"""The embedded queue against its model."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from unittest import mock

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fleet.sources.sqlite import lease as sqlite_lease
from fleet.sources.sqlite.publisher import DEDUP_MS
from tests.unit.sources import queue_model
from tests.unit.sources.queue_model import VISIBILITY_MS, Run, Step, steps_of_a_run
from tests.unit.sources.sqlite.queue_file import QueueFile


async def _run(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        queue_file = QueueFile(Path(folder) / "queue.db")
        async with queue_file.source(visibility_ms=VISIBILITY_MS) as source, queue_file.publisher() as publisher:
            run = Run(queue_file.clock, source, publisher, fills=True)
            for step in steps:
                await run.step(*step)
            await run.drain()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps_of_a_run, st.sampled_from([1, 4, 32]))
def test_the_queue_does_what_its_model_does(steps: list[Step], fewest_groups: int) -> None:
    assert queue_model.DEDUP_MS == DEDUP_MS
    # With fewer groups to spread over, batches as small as these take several messages in a row, too.
    with mock.patch.object(sqlite_lease, "FEWEST_GROUPS", fewest_groups):
        asyncio.run(_run(steps))
