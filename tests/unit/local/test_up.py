"""When `fleet up` takes the end of its syncer for final: where another would meet the same."""

from __future__ import annotations

from fleet.config.settings import ConfigSettings
from fleet.errors import InvalidConfig
from fleet.local.up import is_bad


async def test_a_configuration_that_can_be_read_is_no_reason_to_end() -> None:
    async def fetch(_: str) -> bytes:
        return b'{"queues": [], "processingPools": [{"code": "A"}]}'

    assert not await is_bad(ConfigSettings(source="https://config/router.json"), fetch)


async def test_one_that_is_bad_or_not_to_be_had_is() -> None:
    async def wrong(_: str) -> bytes:
        return b"{"

    async def away(source: str) -> bytes:
        raise InvalidConfig(f"{source}: cannot be reached")

    assert await is_bad(ConfigSettings(source="https://config/router.json"), wrong)
    assert await is_bad(ConfigSettings(source="https://config/router.json"), away)
    assert await is_bad(ConfigSettings(inline=b"{"), away)
