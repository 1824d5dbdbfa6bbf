"""Asking syncers to read their sources: they answer in their heartbeats, and who does not is named."""

from __future__ import annotations

import asyncio
from typing import Any

from fleet.state.keys import CHANGED_CHANNEL
from fleet.state.registry import Registry
from fleet.state.reload import reload, request_of
from tests.lua.stage import Stage, hearing


async def beat(stage: Stage, name: str, **more: Any) -> None:
    await Registry(stage.client).beat(name, {"role": name.split("-")[0], "name": name, **more}, ttl_ms=60_000)


async def test_what_each_syncer_made_of_a_reload_is_told_apart(stage: Stage) -> None:
    for name in ("syncer-a", "syncer-b", "syncer-c", "worker-d"):
        await beat(stage, name, reloaded={"request": "an older one", "error": "no more"})
    async with hearing(stage, CHANGED_CHANNEL) as heard:
        asking = asyncio.create_task(reload(stage.client, within_s=0.5))
        request = request_of(await heard.one())
        await beat(stage, "syncer-a", reloaded={"request": request, "error": ""})
        await beat(stage, "syncer-b", reloaded={"request": request, "error": "b.json: not JSON"})
        found = await asking
    assert (found.good, found.failed, found.silent) == (["syncer-a"], {"syncer-b": "b.json: not JSON"}, ["syncer-c"])


async def test_a_syncer_that_ends_meanwhile_is_not_waited_for(stage: Stage) -> None:
    await beat(stage, "syncer-a")
    asking = asyncio.create_task(reload(stage.client, within_s=60.0))
    await asyncio.sleep(0)
    await Registry(stage.client).leave("syncer-a")
    async with asyncio.timeout(10):
        assert (await asking).silent in (["syncer-a"], [])


async def test_without_a_syncer_nobody_is_asked(stage: Stage) -> None:
    found = await reload(stage.client)
    assert (found.good, found.failed, found.silent) == ([], {}, [])


def test_other_messages_of_the_channel_are_no_request() -> None:
    assert [request_of(text) for text in ("config", "lease", "reload:x1")] == ["", "", "x1"]
