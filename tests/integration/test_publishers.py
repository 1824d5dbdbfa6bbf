"""What a publisher says of each message when its line is cut in the middle of a call, and what the queue then holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from fleet.errors import SourceUnavailable
from fleet.operate.send import Overrides, drafts_from_lines, send
from fleet.sources.base import Outgoing, Receipt, Surroundings, Unsent, Unsure
from fleet.sources.open import open_publisher, open_source
from tests.servers.activemq import ActiveMqServer
from tests.servers.local import RedisServer
from tests.servers.nats import NatsServer
from tests.servers.proxy import Proxy, proxied

MESSAGES, BODY_BYTES = 80, 100_000
CUT_AFTER_BYTES = MESSAGES * BODY_BYTES * 3 // 4
SOON_MS = 5000
KINDS = ("fleet", "nats", "activemq")
KNOWN_AGAIN = ("fleet", "nats")
"""Kinds that take a second message of one id for the first."""


class Way:
    """One queue, past the line and along it."""

    def __init__(self, near: tuple[str, Surroundings], far: tuple[str, Surroundings], line: Proxy) -> None:
        (self.near_uri, self.near), (self.far_uri, self.far), self.line = near, far, line

    async def contents(self) -> list[str]:
        """First words of the bodies, in order; they are acked."""
        source = open_source("orders", self.near_uri, 30_000, around=self.near)
        await source.open()
        words: list[str] = []
        while batch := await source.poll(100, 1000):
            words += [one.body.split()[0].decode() for one in batch]
            await source.ack([Receipt(one.broker_id, one.handle) for one in batch])
        await source.close()
        return words


@contextmanager
def a_way(kind: str, request: pytest.FixtureRequest) -> Iterator[Way]:
    nothing = Surroundings()
    with ExitStack() as stack:
        match kind:
            case "fleet":
                redis: RedisServer = request.getfixturevalue("redis_server")
                line = stack.enter_context(proxied(redis.port))
                far = redis.url.replace(f":{redis.port}/", f":{line.port}/")
                uri = "fleet://halfway"
                yield Way((uri, Surroundings(redis_url=redis.url)), (uri, Surroundings(redis_url=far)), line)
            case "nats":
                nats: NatsServer = request.getfixturevalue("nats_server")
                line = stack.enter_context(proxied(nats.port))
                stream = nats.new_stream()
                yield Way((nats.uri(stream), nothing), (nats.uri(stream, port=line.port), nothing), line)
            case _:
                broker: ActiveMqServer = request.getfixturevalue("activemq_server")
                line = stack.enter_context(proxied(broker.port))
                yield Way((broker.uri("halfway"), nothing), (broker.uri("halfway", port=line.port), nothing), line)


def messages() -> list[Outgoing]:
    return [Outgoing(f"m{i:03d}", b"m%03d " % i + b"x" * BODY_BYTES, "g") for i in range(MESSAGES)]


@pytest.mark.parametrize("kind", KINDS)
async def test_each_message_of_a_call_that_was_cut_half_way_is_told_as_it_is(
    request: pytest.FixtureRequest, kind: str
) -> None:
    with a_way(kind, request) as way:
        publisher = open_publisher(way.far_uri, around=way.far)
        await publisher.open()
        sent = messages()
        way.line.cut_after(CUT_AFTER_BYTES)
        answers = await publisher.publish(sent)
        accepted = [m.id for m, answer in zip(sent, answers, strict=True) if answer is None]
        doubtful = [m.id for m, answer in zip(sent, answers, strict=True) if isinstance(answer, Unsure)]
        not_sent = [m.id for m, answer in zip(sent, answers, strict=True) if isinstance(answer, Unsent)]
        assert accepted and doubtful
        assert accepted + doubtful + not_sent == [m.id for m in sent]
        # Nothing is known to be accepted, then: that is an error, and no list.
        with pytest.raises(SourceUnavailable):
            await publisher.publish(sent)
        way.line.mend()
        if kind in KNOWN_AGAIN:
            rest = [m for m, answer in zip(sent, answers, strict=True) if answer is not None]
            assert await publisher.publish(rest) == [None] * len(rest)
            assert await way.contents() == [m.id for m in sent]
        else:
            found = await way.contents()
            assert found[: len(accepted)] == accepted
            assert set(found) <= {*accepted, *doubtful}
        await publisher.close()


async def test_a_sender_whose_line_is_cut_hears_what_is_in_and_where_it_stopped(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_way("fleet", request) as way:
        monkeypatch.setattr("fleet.sources.open._around", way.far)
        body = {"mediationTarget": "http://h/", "messageGroupId": "g", "text": "x" * 1000}
        lines = [json.dumps({"id": f"{i}", **body}).encode() for i in range(2000)]
        # The first call goes twice: this Redis does not know our scripts yet.
        way.line.cut_after(1_950_000)
        sent = await send(way.far_uri, drafts_from_lines(lines, Overrides()))
        assert (sent.accepted, sent.unsure, sent.refused, sent.is_whole) == (1000, 500, 0, False)
        assert sent.doubts[0].startswith("line 1001: it may not have been accepted")
        assert sent.stopped.startswith("line 1501 and what is behind it")
        way.line.mend()
        again = await send(way.far_uri, drafts_from_lines(lines, Overrides()))
        assert (again.accepted, again.is_whole) == (2000, True)
        assert len(await way.contents()) == 2000
