from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from fleet.sources.base import Outgoing, Receipt, Received, Source
from tests.conformance.kits import KITS, Kit
from tests.conformance.table import Table, facts_of

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


def held(received: list[Received]) -> list[Receipt]:
    return [Receipt(one.broker_id, one.handle) for one in received]


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
    facts = facts_of(metafunc.function)
    _table.expect(facts)
    if "bench" in metafunc.fixturenames or "kind" in metafunc.fixturenames:
        # The first of its rows is one of every kind that the test is run for.
        can = [kind for kind, reason in next(iter(facts.values())).items() if not reason]
        name = "bench" if "bench" in metafunc.fixturenames else "kind"
        metafunc.parametrize(name, can, indirect=name == "bench")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    callspec = getattr(item, "callspec", None)
    kind = callspec.params.get("bench", callspec.params.get("kind")) if callspec is not None else None
    if kind is not None and (report.when == "call" or report.failed):
        for fact in facts_of(item.function):  # type: ignore[attr-defined]
            _table.note(fact, kind, passed=report.passed)
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _table.facts:
        terminalreporter.write_line("")
        terminalreporter.write_line(_table.text())
