"""What a message waits for that still stands in its queue."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fleet.clock import SystemClock
from fleet.lease import Lease
from fleet.sources.base import Outgoing, Publisher, Source
from fleet.sources.open import open_publisher, open_source
from fleet.state.by_hand import PoolByHand
from fleet.state.keys import QueueKeys
from fleet.state.registry import Registry
from fleet.words import utc
from tests.state.explaining import explain, served
from tests.state.stage import Stage, entry, in_groups, pause, submit


class Embedded:
    """An embedded queue, and a coordinator that owns it unless told otherwise."""

    def __init__(self, uri: str, publisher: Publisher, source: Source) -> None:
        self.uri = uri
        self.publisher = publisher
        self.source = source

    async def send(self, message: str, group: str | None = "g", *, pool: str = "P", delay_ms: int = 0) -> None:
        body = {"id": message, "poolCode": pool, "mediationTarget": "http://h/"}
        assert await self.publisher.publish([Outgoing(message, json.dumps(body).encode(), group, None, delay_ms)]) == [
            None
        ]


@pytest.fixture
async def embedded(tmp_path: Path) -> AsyncIterator[Embedded]:
    uri = f"sqlite:///{tmp_path}/q.db?queue=q"
    publisher, source = open_publisher(uri), open_source("q", uri, 60_000)
    await publisher.open()
    await source.open()
    yield Embedded(uri, publisher, source)
    await publisher.close()
    await source.close()


async def owned(stage: Stage) -> None:
    lease = Lease(
        client=stage.client, key=QueueKeys("q").owner, owner="coordinator-1", ttl_ms=600_000, clock=SystemClock()
    )
    assert await lease.acquire()


async def test_a_message_that_waits_to_be_polled_names_who_polls(stage: Stage, embedded: Embedded) -> None:
    await served(stage)
    await owned(stage)
    await embedded.send("m1")
    for subject in ("m1", "g"):
        found = await explain(stage, subject, uri=embedded.uri)
        assert found.state == "AT_SOURCE"
        assert "coordinator-1" in found.waits_for


async def test_a_queue_without_an_owner_waits_for_a_coordinator(stage: Stage, embedded: Embedded) -> None:
    await served(stage)
    await embedded.send("m1")
    found = await explain(stage, "m1", uri=embedded.uri)
    assert (found.state, found.waits_for) == ("NO_COORDINATOR", "a coordinator to own queue q")
    await Registry(stage.client).beat("off-c", {"role": "coordinator", "enabled": False}, ttl_ms=600_000)
    found = await explain(stage, "m1", uri=embedded.uri)
    assert (found.state, found.waits_for) == ("NO_COORDINATOR", "the router to be switched on")


async def test_a_delayed_message_names_its_time(stage: Stage, embedded: Embedded) -> None:
    before = time.time_ns() // 1_000_000
    await embedded.send("m1", delay_ms=60_000)
    found = await explain(stage, "m1", uri=embedded.uri)
    assert found.state == "DELAYED"
    assert found.until_ms is not None
    # A queue file has a time of its own, in whole ms: it is told by ours to a ms or two.
    assert before + 60_000 - 2 <= found.until_ms <= time.time_ns() // 1_000_000 + 60_000 + 2
    assert found.to_json()["until"] == utc(found.until_ms)


async def test_a_message_that_was_taken_and_is_tracked_by_nobody_is_invisible_until(
    stage: Stage, embedded: Embedded
) -> None:
    await embedded.send("m1")
    await embedded.send("m2")
    assert len(await embedded.source.poll(1, 0)) == 1
    first, second = [await explain(stage, one, uri=embedded.uri) for one in ("m1", "m2")]
    assert first.state == "INVISIBLE"
    assert first.until_ms is not None
    assert (second.state, second.until_ms) == ("BEHIND_AT_SOURCE", first.until_ms)
    assert second.waits_for == "message m1, older in its group"
    assert any("behind 1 older message of its group" in sentence for sentence in second.details)


async def test_a_message_of_an_unknown_pool_goes_to_the_default_pool(stage: Stage, embedded: Embedded) -> None:
    await stage.pool("DEFAULT-POOL")
    await owned(stage)
    await embedded.send("m1", pool="NEVER-HEARD-OF")
    found = await explain(stage, "m1", uri=embedded.uri)
    assert found.state == "AT_SOURCE"
    assert "Its pool NEVER-HEARD-OF is not configured: it goes to DEFAULT-POOL." in found.details


async def test_a_message_for_a_draining_pool_waits_in_its_queue(stage: Stage, embedded: Embedded) -> None:
    await served(stage)
    await owned(stage)
    await PoolByHand(stage.client, "P").adjust(draining=True)
    await embedded.send("m1")
    found = await explain(stage, "m1", uri=embedded.uri)
    assert found.state == "DRAINING"
    assert any("by hand" in sentence for sentence in found.details)


async def test_a_message_for_a_full_pool_waits_for_room(stage: Stage, embedded: Embedded) -> None:
    pool = await served(stage, capacity=50)
    await owned(stage)
    await submit(pool, in_groups(50))
    await embedded.send("m1")
    found = await explain(stage, "m1", uri=embedded.uri)
    assert (found.state, found.waits_for) == ("POOL_FULL", "room in pool P")


async def test_a_pool_that_redis_does_not_know_waits_for_the_syncer(stage: Stage, embedded: Embedded) -> None:
    await owned(stage)
    await embedded.send("m1")
    assert (await explain(stage, "m1", uri=embedded.uri)).state == "UNKNOWN_POOL"


async def test_a_file_that_is_no_queue_is_named(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "no.db").write_text("no database at all" * 100)
    found = await explain(stage, "m1", uri=f"sqlite:///{tmp_path}/no.db?queue=q")
    assert found.state == "UNKNOWN"
    assert "no.db" in found.details[0]


async def test_one_behind_a_message_that_its_pool_holds_hears_what_keeps_that(stage: Stage, embedded: Embedded) -> None:
    await embedded.send("m1")
    await embedded.send("m2")
    pool = await served(stage)
    (received,) = await embedded.source.poll(1, 0)
    queue = await stage.queue()
    (tracking,) = await queue.track([(received.broker_id, "m1", "P", "g", received.handle)])
    message = entry(received.broker_id, "g", token=tracking.token)
    message.message_id = "m1"
    await submit(pool, [message])
    await pause(pool)
    found = await explain(stage, "m2", uri=embedded.uri)
    assert (found.state, found.until_ms) == ("BEHIND_AT_SOURCE", None)
    assert "Message m1 is PAUSED and waits for `fleet pool resume P`." in found.details
