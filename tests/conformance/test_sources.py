"""What every queue must do for Fleet, whatever it is made of. Waits are polls that wait, never sleeps."""

from __future__ import annotations

import asyncio

import pytest

from fleet.sources.base import Outgoing, Receipt
from tests.conformance.conftest import Bench, bodies, held

SOON_MS = 5_000
"""Long enough for anything that is to come; what comes ends the wait."""


async def test_messages_come_as_they_were_sent(bench: Bench) -> None:
    source = await bench.source()
    raw = bytes(range(256))
    await bench.publisher.publish([Outgoing(id="raw", body=raw, group="größe 1")])
    (received,) = await source.poll(10, SOON_MS)
    assert (received.body, received.group, received.receive_count) == (raw, "größe 1", 1)
    assert received.handle.isprintable()
    assert received.broker_id.isprintable()


async def test_a_group_comes_in_the_order_it_was_sent(bench: Bench) -> None:
    source = await bench.source()
    sent = [f"{number}" for number in range(40)]
    await bench.send(*sent[:25])
    await bench.send(*sent[25:])
    seen: list[str] = []
    while len(seen) < len(sent):
        received = await source.poll(10, SOON_MS)
        seen += bodies(received)
        assert all(await source.ack(held(received)))
    assert seen == sent


async def test_an_empty_queue_gives_nothing(bench: Bench) -> None:
    source = await bench.source()
    assert await source.poll(10, 0) == []
    assert (await source.ack([]), await source.nack([]), await source.extend([], 1000)) == ([], [], [])


async def test_a_leased_message_is_not_shown_again(bench: Bench) -> None:
    source = await bench.source()
    await bench.send("a", group=None)
    assert bodies(await source.poll(10, SOON_MS)) == ["a"]
    assert await source.poll(10, 2 * bench.short_ms) == []


async def test_a_lapsed_lease_shows_the_message_again_under_the_same_id_with_a_new_handle(bench: Bench) -> None:
    source = await bench.source(bench.short_ms)
    await bench.send("a")
    (first,) = await source.poll(10, SOON_MS)
    (second,) = await source.poll(10, SOON_MS)
    assert (second.body, second.broker_id, second.receive_count) == (b"a", first.broker_id, 2)
    assert second.handle != first.handle


async def test_an_acked_message_never_comes_back(bench: Bench) -> None:
    source = await bench.source(bench.short_ms)
    await bench.send("a")
    assert await source.ack(held(await source.poll(10, SOON_MS))) == [True]
    assert await source.poll(10, 3 * bench.short_ms) == []


async def test_a_handle_of_an_earlier_delivery_changes_nothing(bench: Bench) -> None:
    hasty = await bench.source(bench.short_ms)
    await bench.send("a")
    old = held(await hasty.poll(10, SOON_MS))
    patient = await bench.source()
    (current,) = await patient.poll(10, SOON_MS)
    assert await hasty.ack(old) == [False]
    assert await hasty.nack([(old[0], 0)]) == [False]
    assert await hasty.extend(old, 1) == [False]
    assert await patient.poll(10, 2 * bench.short_ms) == []
    assert await patient.ack(held([current])) == [True]


async def test_answers_stand_in_the_places_of_the_questions(bench: Bench) -> None:
    source = await bench.source()
    await bench.send("a", "b", "c")
    one, two, three = held(await source.poll(10, SOON_MS))
    assert await source.ack([two]) == [True]
    assert await source.ack([one, two, three]) == [True, True, True]
    assert await source.nack([(two, 0)]) == [False]


@pytest.mark.parametrize("handle", ["", "x", "1.2.3", "a.b.c.d", "\u0663.1.1.1", "9" * 4000])
async def test_an_unknown_handle_is_answered_with_false(bench: Bench, handle: str) -> None:
    source = await bench.source()
    await bench.send("a")
    (received,) = await source.poll(10, SOON_MS)
    assert await source.ack([Receipt("x", handle), *held([received])]) == [False, True]


async def test_a_nacked_message_is_shown_again_at_once(bench: Bench) -> None:
    source = await bench.source()
    await bench.send("a")
    (first,) = await source.poll(10, SOON_MS)
    assert await source.nack([(held([first])[0], 0)]) == [True]
    (second,) = await source.poll(10, SOON_MS)
    assert (second.broker_id, second.receive_count) == (first.broker_id, 2)


async def test_each_nack_has_its_own_delay(bench: Bench) -> None:
    source = await bench.source()
    await bench.send("late", "later", group=None)
    by_body = {one.body: held([one])[0] for one in await source.poll(10, SOON_MS)}
    await source.nack([(by_body[b"later"], 60_000), (by_body[b"late"], bench.short_ms)])
    assert await source.poll(10, 0) == []
    assert bodies(await source.poll(10, SOON_MS)) == ["late"]
    assert await source.poll(10, 0) == []


async def test_an_extended_lease_outlives_its_first_deadline(bench: Bench) -> None:
    source = await bench.source(bench.short_ms)
    await bench.send("a")
    received = await source.poll(10, SOON_MS)
    assert await source.extend(held(received), 60_000) == [True]
    assert await source.poll(10, 3 * bench.short_ms) == []
    assert await source.ack(held(received)) == [True]


async def test_nothing_of_a_group_comes_while_an_older_message_is_leased(holding_bench: Bench) -> None:
    source = await holding_bench.source()
    await holding_bench.send("1", "2")
    first = await source.poll(1, SOON_MS)
    await holding_bench.send("3")
    assert await source.poll(10, 0) == []
    await source.ack(held(first))
    assert bodies(await source.poll(10, SOON_MS)) == ["2", "3"]


async def test_nothing_of_a_group_comes_while_an_older_message_is_delayed(holding_bench: Bench) -> None:
    source = await holding_bench.source()
    await holding_bench.send("1", delay_ms=3 * holding_bench.short_ms)
    await holding_bench.send("2")
    assert await source.poll(10, 0) == []
    received = await source.poll(10, SOON_MS)
    assert bodies(received) == ["1", "2"]
    await source.nack([(held(received)[0], 3 * holding_bench.short_ms), (held(received)[1], 0)])
    assert await source.poll(10, 0) == []
    assert bodies(await source.poll(10, SOON_MS)) == ["1", "2"]


async def test_an_invisible_message_in_the_middle_ends_what_a_group_gives(holding_bench: Bench) -> None:
    source = await holding_bench.source()
    await holding_bench.send("1", "2", "3", "4")
    received = await source.poll(10, SOON_MS)
    await source.nack([(one, delay) for one, delay in zip(held(received), [0, 0, 60_000, 0], strict=True)])
    assert bodies(await source.poll(10, SOON_MS)) == ["1", "2"]
    assert await source.poll(10, 0) == []


async def test_a_held_group_holds_no_other(bench: Bench) -> None:
    source = await bench.source()
    await bench.send("a1", "a2", group="a")
    await source.poll(1, SOON_MS)
    await bench.send("b1", group="b")
    await bench.send("n1", group=None)
    assert sorted(bodies(await source.poll(10, SOON_MS))) == ["b1", "n1"]


async def test_messages_without_a_group_do_not_hold_each_other(bench: Bench) -> None:
    source = await bench.source()
    await bench.send("1", "2", group=None)
    (first,) = await source.poll(1, SOON_MS)
    (second,) = await source.poll(10, SOON_MS)
    assert {first.body, second.body} == {b"1", b"2"}
    assert first.group is None


async def test_a_repeated_dedup_id_is_accepted_and_comes_once(bench: Bench) -> None:
    source = await bench.source()
    await bench.send("once", "in one call", dedup_id="d1")
    await bench.send("in another", dedup_id="d1")
    await bench.send("other", dedup_id="d2")
    assert bodies(await source.poll(10, SOON_MS)) == ["once", "other"]
    await bench.send("again", dedup_id="d1")
    assert await source.poll(10, 0) == []


async def test_a_waiting_poll_wakes_on_a_send(bench: Bench) -> None:
    source = await bench.source()
    poll = asyncio.create_task(source.poll(10, SOON_MS))
    assert await source.poll(10, 0) == []  # by now the other one waits
    await bench.send("a")
    assert bodies(await poll) == ["a"]


async def test_a_waiting_poll_wakes_when_an_ack_frees_its_group(holding_bench: Bench) -> None:
    source = await holding_bench.source()
    await holding_bench.send("1", "2")
    first = await source.poll(1, SOON_MS)
    poll = asyncio.create_task(source.poll(10, SOON_MS))
    assert await source.poll(10, 0) == []
    await source.ack(held(first))
    assert bodies(await poll) == ["2"]


async def test_a_cancelled_poll_loses_nothing_and_keeps_the_order(bench: Bench) -> None:
    source = await bench.source()
    await bench.send("1", "2", "3")
    for turns in range(12):  # cancel it at every step it takes
        poll = asyncio.create_task(source.poll(10, 0))
        for _ in range(turns):
            await asyncio.sleep(0)
        poll.cancel()
        try:
            returned = await poll
        except asyncio.CancelledError:
            continue
        await source.nack([(one, 0) for one in held(returned)])
    assert bodies(await source.poll(10, SOON_MS)) == ["1", "2", "3"]


async def test_depth_tells_waiting_from_invisible(bench: Bench) -> None:
    source = await bench.source()
    empty = await source.depth()
    assert (empty.waiting, empty.invisible, empty.oldest_s or 0.0) == (0, 0, 0.0)
    await bench.send("1", "2", "3", "4")
    await bench.send("delayed", group=None, delay_ms=60_000)
    received = await source.poll(2, SOON_MS)
    depth = await source.depth()
    assert (depth.waiting, depth.invisible) == (2, 3)
    assert depth.oldest_s is None or 0 <= depth.oldest_s < 60
    await source.ack(held(received))
    assert ((await source.depth()).waiting, (await source.depth()).invisible) == (2, 1)


async def test_what_was_sent_and_leased_outlives_the_connection(bench: Bench) -> None:
    source = await bench.source(bench.short_ms)
    await bench.send("1", "2")
    received = await source.poll(1, SOON_MS)
    await source.close()
    again = await bench.source()
    assert await again.ack(held(received)) == [True]
    assert bodies(await again.poll(10, SOON_MS)) == ["2"]
