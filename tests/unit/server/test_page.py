"""docs/server.md names every address and every metric, and none that is not there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import fakeredis
import pytest

from fleet.server import metrics
from fleet.server.app import ROUTES
from fleet.server.aside import Here
from fleet.server.breakers import BreakerBoard
from fleet.server.depths import Depths
from tests.clocks import HandClock
from tests.unit.server.test_snapshot import NoBreakers

PAGE = (Path(__file__).parents[3] / "docs" / "server.md").read_text(encoding="utf-8")


def test_every_address_is_described_and_every_one_that_is_named_exists() -> None:
    there = {re.sub(r":path\b", "", route.path) for route in ROUTES} - {"/"}
    named = set(re.findall(r"`(?:GET |POST |PUT )?(/[a-z/{}-]+)", PAGE))
    assert named == there


async def test_every_metric_is_described_and_every_one_that_is_named_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fakeredis.FakeAsyncRedis(decode_responses=True, server=fakeredis.FakeServer()) as client:
        board: Any = cast("BreakerBoard", NoBreakers())
        page = await metrics.exposition(Here(client), depths=Depths(clock=HandClock()), breakers=board, due=None)
    there = set(re.findall(r"^# TYPE (\S+)", page.decode(), re.MULTILINE))
    table = PAGE[PAGE.index("## Metrics") : PAGE.index("Counters are summed up")]
    assert set(re.findall(r"`(fleet_[a-z_]+)`", table)) == there
