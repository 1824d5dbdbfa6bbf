"""ActiveMQ without a broker: addresses, frames, ids, and what a connection remembers."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from fleet.errors import InvalidConfig, SourceUnavailable
from fleet.sources.activemq import frames
from fleet.sources.activemq.address import DEFAULT_PREFETCH, Address, parse_address
from fleet.sources.activemq.publisher import ActiveMqPublisher
from fleet.sources.activemq.session import Memory, Session
from fleet.sources.activemq.source import ActiveMqSource
from fleet.sources.base import Outgoing
from fleet.sources.open import open_publisher, open_source


def test_an_address_names_host_port_queue_user_and_prefetch() -> None:
    assert parse_address("stomp://mq/orders") == Address("mq", 61613, "orders", "", "", DEFAULT_PREFETCH)
    full = parse_address("stomp://me:p%40ss%3a@[::1]:7/a.b%2Fc?prefetch=20")
    assert full == Address("::1", 7, "a.b/c", "me", "p@ss:", 20)


@pytest.mark.parametrize(
    "uri",
    [
        "stomp://u:s3cret@/q",
        "stomp://u:s3cret@mq",
        "stomp://u:s3cret@mq/",
        "stomp://u:s3cret@mq:70000/q",
        "stomp://u:s3cret@mq:port/q",
        "stomp://u:s3cret@[mq/q",
        "stomp://u:s3cret@mq/a,b",
        "stomp://u:s3cret@mq/a.>",
        "stomp://u:s3cret@mq/*",
        "stomp://u:s3cret@mq/a%0Ab",
        "stomp://u:s3cret@mq/a%3Fconsumer.exclusive=true",
        "stomp://u:s3cret@mq/q#s3cret",
        "stomp://u:s3cret@mq/q?prefetch=0",
        "stomp://u:s3cret@mq/q?prefetch=many",
        "stomp://u:s3cret@mq/q?prefetch=100001",
        "stomp://u:s3cret@mq/q?password=s3cret",
    ],
)
def test_an_address_that_is_none_is_refused_without_being_repeated(uri: str) -> None:
    for take in (lambda: open_source("q", uri, 1000), lambda: open_publisher(uri)):
        with pytest.raises(InvalidConfig) as caught:
            take()
        assert "s3cret" not in str(caught.value)
        assert caught.value.__cause__ is None


def test_an_address_shows_neither_user_nor_password() -> None:
    address = parse_address("stomp://admin:s3cret@mq/orders")
    assert str(address) == "stomp://mq:61613/orders"
    assert "s3cret" not in repr(address)


def test_the_scheme_leads_to_the_adapter() -> None:
    source = open_source("orders", "stomp://mq/o", 1234)
    assert isinstance(source, ActiveMqSource)
    assert (source.visibility_ms, source.holds_groups, source.crash_wait_ms) == (1234, False, 15_000)
    assert isinstance(open_publisher("stomp://mq/o"), ActiveMqPublisher)


def test_stomp_py_is_not_imported_before_it_is_needed() -> None:
    code = "import sys, fleet.sources.open; sys.exit('stomp' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


async def test_what_is_not_open_is_unavailable_and_closes() -> None:
    source = open_source("orders", "stomp://u:s3cret@mq/o", 1000)
    for call in (source.poll(1, 0), source.ack([]), source.nack([]), source.extend([], 1)):
        with pytest.raises(SourceUnavailable, match=r"^stomp://mq:61613/o: not connected$"):
            await call
    await source.close()
    await open_publisher("stomp://mq/o").close()


def test_headers_are_escaped_but_those_of_connect() -> None:
    assert frames.StompCommand("SEND", {"a:b": "c\nd\\e\r"}, b"x\0y").encoded("7") == (
        b"SEND\na\\cb:c\\nd\\\\e\\r\nreceipt:7\n\nx\0y\0"
    )
    assert frames.StompCommand("CONNECT", {"passcode": "a:b"}).encoded() == b"CONNECT\npasscode:a:b\n\n\0"


def test_a_message_is_sent_persistent_with_its_group_twice_and_its_delay() -> None:
    sent = frames.send("q", Outgoing(id="1", body=b"ab", group="größe", delay_ms=5))
    assert sent.headers == {
        "destination": "/queue/q",
        "persistent": "true",
        "content-length": "2",
        "JMSXGroupID": "größe",
        "FleetGroup": "größe",
        "AMQ_SCHEDULED_DELAY": "5",
    }
    bare = frames.send("q", Outgoing(id="1", body=b""))
    assert bare.headers == {"destination": "/queue/q", "persistent": "true", "content-length": "0"}


def test_what_cannot_be_written_as_a_frame_is_refused_alone() -> None:
    assert frames.refusal(Outgoing(id="1", body=b"", group="a\0b")) == "group holds a NUL"
    assert frames.refusal(Outgoing(id="1", body=b"", group="\ud800")) == "group is not valid text"
    assert frames.refusal(Outgoing(id="1", body=b"", delay_ms=-1)) == "delay is negative"
    assert frames.refusal(Outgoing(id="1", body=b"", group="a\nb:c")) is None


def test_a_copy_keeps_what_the_sender_wrote_and_nothing_that_the_broker_did() -> None:
    headers = {
        "ack": "1", "message-id": "ID:1", "subscription": "fleet", "destination": "/queue/old", "redelivered": "true",
        "expires": "0", "timestamp": "17", "priority": "7", "persistent": "true", "content-length": "9",
        "scheduledJobId": "j", "AMQ_SCHEDULED_DELAY": "9", "AMQ_SCHEDULED_PERIOD": "9", "correlation-id": "c",
        "tenant": "t", "FleetGroup": "g",
    }  # fmt: skip
    copy = frames.copy_of("q", headers, b"a\0b", broker_id="ID:0", count=3, delay_ms=500)
    assert copy.headers == {
        "destination": "/queue/q", "persistent": "true", "content-length": "3", "timestamp": "17", "priority": "7",
        "correlation-id": "c", "tenant": "t", "FleetGroup": "g", "JMSXGroupID": "g",
        "FleetId": "ID:0", "FleetCount": "3", "AMQ_SCHEDULED_DELAY": "500",
    }  # fmt: skip
    assert copy.body == b"a\0b"
    text = frames.copy_of("q", {"expires": "99"}, b"text", broker_id="ID:0", count=1, delay_ms=1)
    assert "content-length" not in text.headers
    assert text.headers["expires"] == "99"


class Stage:
    """A session without a connection."""

    def __init__(self, memory: Memory | None = None) -> None:
        self.memory = memory or Memory()
        self.acked_at_once: list[str] = []
        self.session = Session(memory=self.memory, ack_at_once=self.acked_at_once.append)
        self._acks = 0

    def come(self, message_id: str, **headers: str) -> None:
        self._acks += 1
        self.session.add({"message-id": message_id, "ack": f"a{self._acks}", **headers}, b"")

    def take(self, most: int = 10) -> list[tuple[str, int]]:
        return [(one.broker_id, one.receive_count) for one in self.session.take(most)]

    def settle(self, broker_id: str) -> None:
        (handle,) = [handle for handle, one in self.session.out.items() if one.broker_id == broker_id]
        self.session.acknowledged(self.session.out.pop(handle))


async def test_messages_are_taken_in_the_order_in_which_they_came() -> None:
    stage = Stage()
    for broker_id in "1234":
        stage.come(broker_id)
    assert stage.take(3) == [("1", 1), ("2", 1), ("3", 1)]
    for delivery in reversed(list(stage.session.out.values())):
        stage.session.show_again(delivery)
    assert stage.take(2) == [("1", 2), ("2", 2)]
    assert stage.take() == [("3", 2), ("4", 1)]


async def test_a_copy_has_the_id_and_the_count_of_its_original() -> None:
    stage = Stage()
    stage.come("ID:9", FleetId="ID:1", FleetCount="4")
    stage.come("ID:2", redelivered="true")
    stage.come("ID:3", FleetCount="many")
    assert stage.take() == [("ID:1", 5), ("ID:2", 2), ("ID:3", 1)]


async def test_an_id_of_an_original_that_cannot_be_ours_is_somebody_elses_and_means_nothing() -> None:
    stage = Stage()
    for number, foreign in enumerate(("a\x1fb", "a\nb", "\x1e", "i" * 10_000, "")):
        stage.come(f"ID:{number}", FleetId=foreign)
    assert stage.take() == [(f"ID:{number}", 1) for number in range(5)]


async def test_two_with_one_id_are_one_message_and_are_acked_together() -> None:
    stage = Stage()
    stage.come("ID:1", redelivered="true")
    stage.come("ID:9", FleetId="ID:1", FleetCount="1")
    assert stage.take() == [("ID:1", 2)]
    (delivery,) = stage.session.out.values()
    assert delivery.ack_ids == ["a1", "a2"]


async def test_a_copy_of_what_was_acked_is_acked_at_once_also_on_the_next_connection() -> None:
    stage = Stage()
    stage.come("ID:1", redelivered="true")
    stage.take()
    stage.settle("ID:1")
    stage.come("ID:9", FleetId="ID:1", FleetCount="1")
    assert (stage.take(), stage.acked_at_once) == ([], ["a2"])
    after = Stage(stage.memory)
    after.come("ID:10", FleetId="ID:1", FleetCount="1")
    assert (after.take(), after.acked_at_once) == ([], ["a1"])


async def test_a_restarted_broker_that_calls_nothing_redelivered_is_seen_through() -> None:
    before = Stage()
    before.come("ID:1")
    before.take()
    before.session.end()
    stage = Stage(before.memory)
    stage.come("ID:1")
    assert stage.take() == [("ID:1", 2)]
    stage.settle("ID:1")
    stage.come("ID:9", FleetId="ID:1", FleetCount="1")
    assert stage.take() == []


async def test_what_the_broker_did_not_delay_rests_here_until_it_is_due() -> None:
    stage = Stage()
    stage.come("ID:1", AMQ_SCHEDULED_DELAY="20")
    assert stage.take() == []
    async with asyncio.timeout(5):
        await stage.session.arrived.wait()
    assert stage.take() == [("ID:1", 1)]


async def test_what_is_remembered_is_bounded() -> None:
    stage = Stage()
    for number in range(20_001):
        stage.come(f"ID:{number}", redelivered="true")
        stage.take()
        stage.settle(f"ID:{number}")
    assert "ID:0" not in stage.memory.done
    assert "ID:1" in stage.memory.done
    assert "ID:20000" in stage.memory.done
