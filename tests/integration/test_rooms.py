"""How much is asked for, when what the pools can take changes."""

from __future__ import annotations

from coordinator.room import Limits, Rooms
from fleet.state.connect import connected
from fleet.state.pool import Pool, PoolSettings
from tests.integration.owning import HandClock
from tests.servers import RedisServer


async def test_room_that_was_known_is_asked_for_again_once_pools_were_changed(redis_server: RedisServer) -> None:
    async with connected(redis_server.url) as client:
        pool = Pool(client, "P")
        await pool.configure("1", PoolSettings(8, 160))
        rooms = Rooms(client=client, clock=HandClock(), limits_of=lambda _: Limits(160, 8), full=lambda: False)
        assert await rooms.wait({"P": 1.0}, 500) == 160
        await pool.configure("2", PoolSettings(2, 50))
        assert await rooms.wait({"P": 1.0}, 100) == 100, "it was told so"
        rooms.forget()
        assert await rooms.wait({"P": 1.0}, 100) == 50
