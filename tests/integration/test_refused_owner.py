"""An owner of a queue that a pool takes for an older one, though nobody else has the queue."""

from __future__ import annotations

import json
import time

from fleet.sources.base import Received
from fleet.state.pool import Pool
from tests.integration.owning import an_owner
from tests.servers.local import RedisServer
from tests.waiting import eventually


async def test_it_is_soon_above_the_epoch_that_the_pool_remembers(redis_server: RedisServer) -> None:
    """A late call brings one from before Redis's clock stepped back and Redis forgot: seed 800745."""
    async with an_owner(redis_server.url) as owning:
        await owning.configure("q")
        await owning.polls(1)
        ahead = int(time.time() + 3600) * 1_000_000
        assert await Pool(owning.client, "P").fence("q", str(ahead))
        body = json.dumps({"id": "m", "poolCode": "P", "mediationTarget": "http://127.0.0.1:9/"})
        owning.sources[0].answers.put_nowait([Received("1", "handle", body.encode(), "g")])
        for tries in (1, 2):
            await eventually(lambda: not owning.ownership.owned)
            await owning.rounds.round()
            assert (len(owning.sources), owning.ownership.owned) == (tries, {}), "it is not tried all the time"
            await owning.advance(1)
            await owning.polls(0, source=tries)
        await owning.polls(1)
        (owned,) = owning.ownership.owned.values()
        assert int(owned.lease.epoch) == ahead + 1
