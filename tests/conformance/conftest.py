from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from fleet.sources.base import Held, Outgoing, Received, Source
from tests.conformance.kits import KITS, Kit, why_not
from tests.conformance.table import Table

_table = Table()


class Bench:
    """One queue with a publisher and a source, and as many more sources as a test asks for."""

    def __init__(self, kit: Kit, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._kit = kit
        self.short_ms = kit.short_ms
        self.publisher = kit.publisher()

    async def open(self) -> None:
        await self.publisher.open()
        self._stack.push_async_callback(self.publisher.close)

    async def source(self, visibility_ms: int = 30_000) -> Source:
        source = self._kit.source(visibility_ms)
        await source.open()
        self._stack.push_async_callback(source.close)
        return source

    async def send(self, *bodies: str, group: str | None = "g", dedup_id: str | None = None, delay_ms: int = 0) -> None:
        outgoing = [
            Outgoing(id=body, body=body.encode(), group=group, dedup_id=dedup_id, delay_ms=delay_ms) for body in bodies
        ]
        assert await self.publisher.publish(outgoing) == [None] * len(bodies)


def bodies(received: list[Received]) -> list[str]:
    return [one.body.decode() for one in received]


def held(received: list[Received]) -> list[Held]:
    return [Held(one.broker_id, one.handle) for one in received]


@pytest.fixture
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    """A queue of each kind in turn."""
    kit = KITS[request.param]
    server = request.getfixturevalue(kit.server) if kit.server else None
    async with AsyncExitStack() as stack:
        bench = Bench(kit(tmp_path, server), stack)
        await bench.open()
        yield bench


@pytest.fixture
async def holding_bench(bench: Bench) -> Bench:
    """A queue that shows nothing of a group while an older message of it is invisible."""
    assert (await bench.source()).holds_groups
    return bench


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each fact for each kind of queue that can give it. What one cannot is no test, and stands in the table."""
    if "bench" not in metafunc.fixturenames:
        return
    fact = metafunc.function.__name__.removeprefix("test_")
    needs_groups = "holding_bench" in metafunc.fixturenames
    reasons = {name: why_not(kit, fact, needs_groups=needs_groups) for name, kit in KITS.items()}
    _table.expect(fact, reasons)
    metafunc.parametrize("bench", [name for name, reason in reasons.items() if not reason], indirect=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    callspec = getattr(item, "callspec", None)
    if callspec is not None and "bench" in callspec.params and (report.when == "call" or report.failed):
        fact = item.originalname.removeprefix("test_")  # type: ignore[attr-defined]
        _table.note(fact, callspec.params["bench"], passed=report.passed)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _table.facts:
        terminalreporter.write_line("")
        terminalreporter.write_line(_table.text())
