"""What several files of this suite stand on: one fleet with a server, as new for each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.acceptance.fleet_command import Fleet
from tests.acceptance.site import SECRET, Site, address_in, config
from tests.servers.ports import free_port


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("fleet")
    fleet = Fleet(directory, {"FLEET_LEASE_TTL_MS": "2000"})
    pools = ({"code": "P", "concurrency": 4, "secret": SECRET}, {"code": "LIMITED", "rateLimitPerMinute": 600})
    (directory / "router.json").write_text(config(directory, *pools))
    port = free_port()
    with (
        fleet.running("endpoint", "--port", str(port)) as endpoint,
        fleet.running("up", "--config", "router.json", "--workers", "1", "--port", "0") as up,
    ):
        endpoint.says("Listening")
        up.says("Fleet is up")
        yield Site(fleet, up, address_in(up), f"http://127.0.0.1:{port}")
