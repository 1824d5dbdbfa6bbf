"""Outcomes on their way from a worker's outbox to their queues, and what is trimmed from it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any, cast

import pytest

from fleet.errors import StateUnavailable
from fleet.state.entry import ACK, outbox_item
from tests.state.stage import entry
from tests.unit.workers.links import Link
from tests.waiting import eventually
from workers import report
from workers.report import REPORT_EVERY_S, Reporter


class Settled:
    """The settled lists of all queues: at those that are shut a call waits, and so many fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: dict[str, list[list[str]]] = defaultdict(list)
        self.called_s: list[float] = []
        self.under_way = 0
        self.fails = 0
        self.shut: dict[str, asyncio.Event] = {}
        self.link = Link()
        self.reporter = Reporter(client=cast(Any, None), worker="w", on_crash=lambda task: task.result())
        monkeypatch.setattr(report, "Queue", lambda _client, name: QueueOf(self, name))

    def settle(self, call: int, *ids: str, queue: str = "q") -> None:
        self.reporter.report(cast(Any, self.link), call, items(queue, *ids))

    async def until_all_is_told(self) -> None:
        await eventually(lambda: not self.reporter.busy, within_s=60)


class QueueOf:
    def __init__(self, settled: Settled, name: str) -> None:
        self._settled = settled
        self._name = name

    async def report(self, outcomes: list[tuple[str, str, str]]) -> None:
        settled = self._settled
        settled.called_s.append(asyncio.get_running_loop().time())
        settled.under_way += 1
        if self._name in settled.shut:
            await settled.shut[self._name].wait()
        settled.under_way -= 1
        if settled.fails:
            settled.fails -= 1
            raise StateUnavailable("away")
        settled.calls[self._name].append([broker_id for broker_id, _, verdict in outcomes if verdict == ACK])


def items(queue: str, *ids: str) -> list[str]:
    return [outbox_item(entry(one, queue=queue), ACK) for one in ids]


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> Settled:
    return Settled(monkeypatch)


async def test_what_a_call_settled_is_trimmed_when_all_of_it_has_reached_its_queues(settled: Settled) -> None:
    settled.shut["slow"] = asyncio.Event()
    settled.reporter.report(cast(Any, settled.link), 1, items("fast", "a") + items("slow", "b"))
    settled.settle(2, "c", queue="fast")
    await asyncio.sleep(1)
    assert (settled.calls, settled.link.trimmed) == ({"fast": [["a", "c"]]}, [2])
    settled.shut["slow"].set()
    await settled.until_all_is_told()
    assert (settled.calls["slow"], settled.link.trimmed) == ([["b"]], [2, 1])


async def test_a_queue_has_one_call_in_flight_and_what_piles_up_goes_with_the_next(settled: Settled) -> None:
    settled.shut["q"] = asyncio.Event()
    settled.settle(1, "a")
    await asyncio.sleep(1)
    settled.settle(2, "b")
    settled.settle(3, "c", "d")
    await asyncio.sleep(1)
    assert settled.under_way == 1
    settled.shut["q"].set()
    await settled.until_all_is_told()
    assert (settled.calls, settled.link.trimmed) == ({"q": [["a"], ["b", "c", "d"]]}, [1, 2, 3])


async def test_a_queue_hears_of_outcomes_no_more_often_than_it_needs_to(settled: Settled) -> None:
    for call in range(5):
        settled.settle(call, f"m{call}")
        await asyncio.sleep(REPORT_EVERY_S / 2)
    await settled.until_all_is_told()
    pauses_s = [after - before for before, after in zip(settled.called_s, settled.called_s[1:], strict=False)]
    assert len(pauses_s) >= 2
    assert min(pauses_s) >= REPORT_EVERY_S - 1e-9


async def test_an_outage_keeps_all_that_was_settled_and_is_said_once(
    settled: Settled, caplog: pytest.LogCaptureFixture
) -> None:
    settled.fails = 5
    settled.settle(1, "a")
    await asyncio.sleep(0.01)
    settled.settle(2, "b")
    assert settled.link.trimmed == []
    await settled.until_all_is_told()
    assert (settled.calls, settled.link.trimmed) == ({"q": [["a"], ["b"]]}, [1, 2])
    assert caplog.messages == ["outcomes of q wait in the outbox: away"]


async def test_after_an_answer_was_lost_all_that_stands_in_the_outbox_is_told(settled: Settled) -> None:
    away = [StateUnavailable("away")] * 3

    async def outbox(worker: str) -> dict[int, list[str]]:
        assert worker == "w"
        if away:
            raise away.pop()
        return {7: items("q", "a"), 8: items("q", "b")}

    settled.link.pool.outbox = outbox
    settled.reporter.recover(cast(Any, settled.link))
    assert settled.reporter.busy
    await settled.until_all_is_told()
    assert (settled.calls, settled.link.trimmed) == ({"q": [["a", "b"]]}, [7, 8])
