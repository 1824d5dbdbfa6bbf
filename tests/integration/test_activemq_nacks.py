"""Delayed nacks of ActiveMQ, a copy and an ack: owners and brokers that die between the halves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from fleet.errors import SourceUnavailable
from fleet.sources.activemq.address import parse_address
from fleet.sources.activemq.frames import StompCommand
from fleet.sources.activemq.line import StompLine
from fleet.sources.activemq.source import ActiveMqSource
from fleet.sources.base import Depth, Received
from tests.integration.activemq_source import SOON_MS, emptied, poll_again, source_of
from tests.messages import held, opened, send
from tests.servers.activemq import ActiveMqServer


class Died(Exception):
    """The owner, at that point."""


async def _die(*_: Any) -> Any:
    raise Died


@asynccontextmanager
async def an_heir(
    uri: str, monkeypatch: pytest.MonkeyPatch, *, dies_in: str, delay_ms: int
) -> AsyncIterator[tuple[Received, ActiveMqSource]]:
    """Of an owner that died when it nacked the one message; that message, as it had it."""
    await send(uri, "a")
    dying = source_of(uri)
    await dying.open()
    (first,) = await dying.poll(10, SOON_MS)
    monkeypatch.setattr(dying, dies_in, _die)
    with pytest.raises(Died):
        await dying.nack([(held([first])[0], delay_ms)])
    await dying.close()
    async with opened(source_of(uri)) as heir:
        yield first, heir


@pytest.mark.parametrize(
    ("step", "is_there_twice"), [("_send", False), ("_delete_copied", True)], ids=["before the copy", "before the ack"]
)
async def test_an_owner_that_dies_amid_a_delayed_nack_loses_and_doubles_nothing(
    activemq_server: ActiveMqServer, queue: str, step: str, is_there_twice: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with an_heir(activemq_server.uri(queue), monkeypatch, dies_in=step, delay_ms=1000) as (first, heir):
        copies = int(is_there_twice)
        assert (await heir.depth()) == Depth(waiting=1, invisible=copies, oldest_s=None, delayed=copies)
        (again,) = await heir.poll(10, SOON_MS)
        assert (again.body, again.broker_id, again.receive_count) == (b"a", first.broker_id, 2)
        assert await heir.ack(held([again])) == [True]
        assert await heir.poll(10, 1500) == []  # the copy comes in this time, and is dropped
        await emptied(heir)


async def test_a_copy_that_comes_while_its_original_is_out_is_settled_with_it(
    activemq_server: ActiveMqServer, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with an_heir(activemq_server.uri(queue), monkeypatch, dies_in="_delete_copied", delay_ms=100) as (_, heir):
        (again,) = await heir.poll(10, SOON_MS)
        assert await heir.poll(10, 1500) == []  # the copy comes in this time
        assert await heir.ack(held([again])) == [True]
        await emptied(heir)


async def test_a_broker_killed_between_a_copy_and_its_ack_loses_and_doubles_nothing(
    mortal: ActiveMqServer, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = mortal.uri(queue)
    await send(uri, "a")
    async with opened(source_of(uri)) as source:
        (first,) = await source.poll(10, SOON_MS)
        delete = source._delete_copied

        async def killed_meanwhile(*args: Any) -> None:
            mortal.kill()
            await delete(*args)

        monkeypatch.setattr(source, "_delete_copied", killed_meanwhile)
        with pytest.raises(SourceUnavailable):
            await source.nack([(held([first])[0], 1000)])
        mortal.start()
        (again,) = await poll_again(source)
        assert (again.broker_id, again.receive_count) == (first.broker_id, 2)
        assert await source.ack(held([again])) == [True]
        assert await source.poll(10, 1500) == []  # the copy comes in this time, and is dropped
        await emptied(source)


async def test_a_delayed_copy_keeps_body_group_headers_and_id_and_counts_on(
    activemq_server: ActiveMqServer, queue: str
) -> None:
    uri = activemq_server.uri(queue)
    raw = bytes(range(256))
    line = StompLine(address=parse_address(uri))
    await line.open()
    headers = {"destination": f"/queue/{queue}", "persistent": "true", "tenant": "a:b", "FleetGroup": "größe"}
    assert await line.ask([StompCommand("SEND", headers | {"content-length": "256"}, raw)]) == [""]
    async with opened(source_of(uri)) as source:
        (first,) = await source.poll(10, SOON_MS)
        seen = [first]
        for delay_ms in (50, 0, 50):
            assert await source.nack([(held(seen)[-1], delay_ms)]) == [True]
            seen += await source.poll(10, SOON_MS)
        assert [one.receive_count for one in seen] == [1, 2, 3, 4]
        assert {(one.broker_id, one.body, one.group) for one in seen} == {(first.broker_id, raw, "größe")}
        assert source._session.out[seen[-1].handle].headers["tenant"] == "a:b"
        assert len({one.handle for one in seen}) == 4
        assert await source.ack(held(seen)) == [False, False, False, True]
        await emptied(source)
        await line.close()
