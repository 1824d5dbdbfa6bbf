"""Asking the syncer that leads to read its sources: it answers in its heartbeat; one that does not is named."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fleet.clock import SystemClock
from fleet.lease import Lease
from fleet.state.keys import CHANGED_CHANNEL, FleetKeys
from fleet.state.registry import Registry
from fleet.state.reload import Reloaded, reload, request_of
from tests.state.stage import Stage, hearing


async def beat(stage: Stage, name: str, **more: Any) -> None:
    await Registry(stage.client).beat(name, {"role": name.split("-")[0], "name": name, **more}, ttl_ms=60_000)


async def leading(stage: Stage, name: str) -> Lease:
    lease = Lease(client=stage.client, key=FleetKeys.syncer, owner=name, ttl_ms=60_000, clock=SystemClock())
    assert await lease.acquire()
    return lease


async def test_only_the_syncer_that_leads_is_waited_for(stage: Stage) -> None:
    for name in ("syncer-a", "syncer-b", "worker-d"):
        await beat(stage, name, reloaded={"request": "an older one", "error": "no more"})
    await leading(stage, "syncer-b")
    async with hearing(stage, CHANGED_CHANNEL) as heard:
        asking = asyncio.create_task(reload(stage.client, within_s=60.0))
        request = request_of(await heard.one())
        await beat(stage, "syncer-a", reloaded={"request": request, "error": "it is not asked"})
        await asyncio.sleep(0)
        assert not asking.done()
        await beat(stage, "syncer-b", reloaded={"request": request, "error": "b.json: not JSON"})
        assert await asking == Reloaded("syncer-b", answered=True, error="b.json: not JSON")


async def test_one_that_takes_the_lead_meanwhile_is_asked_too(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleet.state.reload._ASK_EVERY_S", 0.01)
    for name in ("syncer-a", "syncer-b"):
        await beat(stage, name)
    first = await leading(stage, "syncer-a")
    async with hearing(stage, CHANGED_CHANNEL) as heard:
        asking = asyncio.create_task(reload(stage.client, within_s=60.0))
        request = request_of(await heard.one())
        await Registry(stage.client).leave("syncer-a")
        await first.release()
        await leading(stage, "syncer-b")
        while request_of(await heard.one()) != request:
            pass
        await beat(stage, "syncer-b", reloaded={"request": request, "error": ""})
        assert await asking == Reloaded("syncer-b", answered=True)


async def test_a_leader_that_says_nothing_is_named(stage: Stage) -> None:
    await beat(stage, "syncer-a")
    await leading(stage, "syncer-a")
    assert await reload(stage.client, within_s=0.2) == Reloaded("syncer-a", answered=False)


async def test_without_a_syncer_nobody_is_asked(stage: Stage) -> None:
    assert await reload(stage.client) == Reloaded("", answered=False)


def test_other_messages_of_the_channel_are_no_request() -> None:
    assert [request_of(text) for text in ("config", "lease", "reload:x1")] == ["", "", "x1"]
