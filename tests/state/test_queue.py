"""What was taken from a source queue, and what came of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from fleet.errors import Fenced, Forgotten
from fleet.state.keys import FleetKeys
from fleet.state.queue import Queue, Settled, Tracked, Tracking
from fleet.state.tracked import brokers_of, which_are_tracked
from tests.state.stage import Stage


def message(broker_id: str, message_id: str = "", *, handle: str = "") -> tuple[str, str, str, str, str]:
    return broker_id, message_id or f"m{broker_id}", "P", "g", handle or f"handle of {broker_id}"


async def track(queue: Queue, *messages: tuple[str, str, str, str, str]) -> list[str]:
    """Track what is new; returns the tokens."""
    tracked = await queue.track(messages)
    assert {t.verdict for t in tracked} == {"new"}
    return [t.token for t in tracked]


async def verdict(queue: Queue, *messages: tuple[str, str, str, str, str]) -> list[str]:
    return [t.verdict for t in await queue.track(messages)]


async def handle_of(queue: Queue, broker_id: str) -> str:
    (record,) = await queue.tracked([broker_id])
    assert record is not None
    return record.handle


async def test_a_new_message_is_tracked_with_all_that_is_known_of_it(stage: Stage) -> None:
    queue = await stage.queue()
    (token,) = await track(queue, message("1"))
    assert await queue.tracked(["1", "2"]) == [
        Tracked("1", token, "t", "P", "m1", "g", stage.now_ms, "handle of 1"),
        None,
    ]
    assert await queue.tracked_count() == 1
    assert [page async for page in queue.all_tracked()] == [await queue.tracked(["1"])]


async def test_tokens_rise_and_are_never_used_again(stage: Stage) -> None:
    queue = await stage.queue()
    first = await track(queue, message("1"), message("2"))
    await queue.untrack([("1", first[0]), ("2", first[1])])
    second = await track(queue, message("1"), message("2"))
    await stage.client.delete(queue.keys.tracked, queue.keys.apps, queue.keys.owner)
    stage.advance(1)
    third = await track(await stage.queue(), message("1"), message("2"))
    tokens = [int(t) for t in first + second + third]
    assert tokens == sorted(set(tokens))


async def test_a_redelivery_is_known_and_its_handle_replaces_the_old_one(stage: Stage) -> None:
    queue = await stage.queue()
    (token,) = await track(queue, message("1"))
    assert await queue.track([message("1", handle="newer")]) == [Tracking("redelivered")]
    (record,) = await queue.tracked(["1"])
    assert record is not None
    assert (record.token, record.handle) == (token, "newer")


async def test_a_copy_of_a_message_in_flight_is_recognised_and_touches_no_handle(stage: Stage) -> None:
    queue = await stage.queue()
    await track(queue, message("1", "app"))
    assert await verdict(queue, message("2", "app", handle="of the copy")) == ["copy"]
    assert await handle_of(queue, "1") == "handle of 1"
    assert await queue.tracked(["2"]) == [None]


async def test_a_message_settled_as_ack_is_acked_again_on_its_newest_handle(stage: Stage) -> None:
    queue = await stage.queue()
    (token,) = await track(queue, message("1"))
    await queue.report([("1", token, "a")])
    assert await verdict(queue, message("1", handle="newer")) == ["acked"]
    assert [s.handle for s in await queue.settled(applied=0, want=9)] == ["newer"]


async def test_a_message_nacked_and_redelivered_before_that_was_applied_is_nacked_on_its_new_handle(
    stage: Stage,
) -> None:
    queue = await stage.queue()
    (token,) = await track(queue, message("1"))
    await queue.report([("1", token, "n5000")])
    assert await verdict(queue, message("1", handle="newer")) == ["redelivered"]
    assert await queue.settled(applied=0, want=9) == [Settled("1", token, False, 5000, "newer")]


async def test_duplicates_inside_a_batch_are_told_apart(stage: Stage) -> None:
    queue = await stage.queue()
    batch = [message("1", "app"), message("2", "app"), message("1", "app", handle="newer"), message("3")]
    assert await verdict(queue, *batch) == ["new", "copy", "redelivered", "new"]
    assert await handle_of(queue, "1") == "newer"
    assert await queue.tracked_count() == 2


async def test_a_message_id_is_free_again_once_its_message_is_settled_as_ack(stage: Stage) -> None:
    queue = await stage.queue()
    (token,) = await track(queue, message("1", "app"))
    await queue.report([("1", token, "a")])
    assert await verdict(queue, message("2", "app")) == ["new"]
    assert await verdict(queue, message("3", "app")) == ["copy"]


async def test_a_message_id_is_not_free_after_a_nack_until_the_message_is_forgotten(stage: Stage) -> None:
    queue = await stage.queue()
    (token,) = await track(queue, message("1", "app"))
    await queue.report([("1", token, "n1")])
    assert await verdict(queue, message("2", "app")) == ["copy"]
    await queue.untrack([("1", token)])
    assert await verdict(queue, message("2", "app")) == ["new"]


async def test_forgetting_an_old_message_does_not_free_the_message_id_of_its_successor(stage: Stage) -> None:
    queue = await stage.queue()
    (token,) = await track(queue, message("1", "app"))
    await queue.report([("1", token, "a")])
    await track(queue, message("2", "app"))
    await queue.untrack([("1", token)])
    assert await verdict(queue, message("3", "app")) == ["copy"]


async def test_message_ids_of_two_queues_do_not_meet(stage: Stage) -> None:
    await track(await stage.queue("q1"), message("1", "app"))
    assert await verdict(await stage.queue("q2"), message("1", "app")) == ["new"]


@pytest.mark.parametrize(
    "call",
    [
        lambda q: q.track([message("2")]),
        lambda q: q.settled(applied=1, want=1),
        lambda q: q.untrack([("1", "1")]),
        lambda q: q.bury(["letter"], keep=5),
    ],
    ids=["track", "settled", "untrack", "bury"],
)
async def test_a_stale_owner_is_refused_and_changes_nothing(
    stage: Stage, call: Callable[[Queue], Awaitable[object]]
) -> None:
    queue = await stage.queue(epoch="200")
    (token,) = await track(queue, message("1"))
    await queue.report([("1", token, "a")])
    before = {key: await stage.client.dump(key) for key in await stage.keys()}
    for epoch in ("199", "201", ""):
        with pytest.raises(Fenced, match="queue q has another owner"):
            await call(Queue(stage.client, "q", epoch=epoch))
    assert {key: await stage.client.dump(key) for key in await stage.keys()} == before


async def test_a_queue_that_nobody_owns_refuses_everybody(stage: Stage) -> None:
    with pytest.raises(Fenced):
        await Queue(stage.client, "q", epoch="1").track([message("1")])
    assert await stage.keys() == set()


@pytest.mark.parametrize("then", [["2", "3"], ["1"]], ids=["new ones", "a new handle"])
async def test_an_owner_hears_that_redis_forgot_what_he_was_told(stage: Stage, then: list[str]) -> None:
    queue = await stage.queue()
    await track(queue, message("1"))
    token = await stage.client.hget(queue.keys.owner, "token")
    assert token is not None
    await queue.track([message(number) for number in then])
    await stage.client.hset(queue.keys.owner, "token", token)  # a replica that had not heard of the last call
    for call in (queue.settled(applied=0, want=9), queue.track([message("4")])):
        with pytest.raises(Forgotten, match="queue q: Redis has lost what was tracked last"):
            await call
    heir = Queue(stage.client, "q", epoch=queue.epoch)
    assert await heir.settled(applied=0, want=9) == []
    assert (await heir.track([message("4")]))[0].verdict == "new"


async def test_an_owner_who_missed_an_answer_goes_on(stage: Stage) -> None:
    queue = await stage.queue()
    await track(queue, message("1"))
    await Queue(stage.client, "q", epoch=queue.epoch).track([message("2")])  # its answer was lost on the way
    assert await queue.settled(applied=0, want=9) == []
    assert await verdict(queue, message("2"), message("3")) == ["redelivered", "new"]


async def test_reporting_twice_changes_nothing(stage: Stage) -> None:
    queue = await stage.queue()
    tokens = await track(queue, message("1"), message("2"))
    outcomes = [("1", tokens[0], "a"), ("2", tokens[1], "n7")]
    assert await queue.report(outcomes + outcomes) == 2
    assert await queue.report(outcomes) == 0
    assert await queue.report([("1", tokens[0], "n9")]) == 0
    assert await queue.settled(applied=0, want=9) == [
        Settled("1", tokens[0], True, 0, "handle of 1"),
        Settled("2", tokens[1], False, 7, "handle of 2"),
    ]


async def test_an_outcome_of_an_earlier_taking_is_dropped(stage: Stage) -> None:
    queue = await stage.queue()
    (old,) = await track(queue, message("1"))
    await queue.untrack([("1", old)])
    (new,) = await track(queue, message("1"))
    assert await queue.report([("1", old, "a"), ("unknown", "1", "a")]) == 0
    assert await queue.settled_count() == 0
    assert await verdict(queue, message("2", "m1")) == ["copy"]
    assert await queue.report([("1", old, "a"), ("1", new, "a")]) == 1


async def test_a_worker_reports_whoever_owns_the_queue(stage: Stage) -> None:
    (token,) = await track(await stage.queue(), message("1"))
    assert await Queue(stage.client, "q").report([("1", token, "a")]) == 1


async def test_outcomes_are_read_in_their_order_and_dropped_when_applied(stage: Stage) -> None:
    queue = await stage.queue()
    tokens = await track(queue, *(message(str(i)) for i in range(5)))
    await queue.report([(str(i), tokens[i], "a") for i in (3, 1, 4)])
    await queue.report([(str(i), tokens[i], "a") for i in (0, 2)])
    assert [s.broker_id for s in await queue.settled(applied=0, want=2)] == ["3", "1"]
    assert [s.broker_id for s in await queue.settled(applied=0, want=2)] == ["3", "1"]
    assert [s.broker_id for s in await queue.settled(applied=2, want=2)] == ["4", "0"]
    assert [s.broker_id for s in await queue.settled(applied=2, want=2)] == ["2"]
    assert await queue.settled(applied=1, want=2) == []
    assert await queue.settled_count() == 0


async def test_an_outcome_of_a_forgotten_message_has_no_handle(stage: Stage) -> None:
    queue = await stage.queue()
    (old,) = await track(queue, message("1"))
    await queue.report([("1", old, "n5000")])
    await queue.untrack([("1", old)])
    assert [s.handle for s in await queue.settled(applied=0, want=1)] == [""]
    await track(queue, message("1", handle="of another taking"))
    assert [s.handle for s in await queue.settled(applied=0, want=1)] == [""]


async def test_untracking_forgets_message_and_message_id_together(stage: Stage) -> None:
    queue = await stage.queue()
    tokens = await track(queue, message("1"), message("2"))
    assert set(await queue.untrack([("1", tokens[0]), ("2", "another token"), ("3", "1")])) == {"1"}
    assert await queue.tracked_count() == 1
    assert await stage.client.hkeys(queue.keys.apps) == ["m2"]


ATTEMPTS = ["http://here/process?attempt=1", "http://here/process?attempt=2"]


async def test_one_with_the_id_of_another_and_another_target_is_a_message_of_its_own(stage: Stage) -> None:
    """As each attempt of a dispatch job is: taken for a copy, the attempt that counts would be thrown away."""
    queue = await stage.queue()
    both = [message("1", "job"), message("2", "job")]
    assert [t.verdict for t in await queue.track(both, targets=ATTEMPTS)] == ["new", "new"]
    (later,) = await queue.track([message("3", "job")], targets=["http://here/process?attempt=3"])
    assert later.verdict == "new"
    (copy,) = await queue.track([message("4", "job")], targets=["http://here/process?attempt=3"])
    assert copy.verdict == "copy"
    assert await brokers_of(stage.client, ["q", "none"], "job") == {"q": "3", "none": None}


@pytest.mark.parametrize("how", ["reported", "untracked"])
async def test_an_id_stays_with_the_message_that_has_it_when_another_is_over(stage: Stage, how: str) -> None:
    queue = await stage.queue()
    first, second = await queue.track([message("1", "job"), message("2", "job")], targets=ATTEMPTS)
    if how == "reported":
        await queue.report([("1", first.token, "a")])
    await queue.untrack([("1", first.token)])
    await stage.client.hset(FleetKeys.queues, "q", "")
    assert await which_are_tracked(stage.client, ["job"]) == {"job"}
    (copy,) = await queue.track([message("3", "job")], targets=ATTEMPTS[1:])
    assert copy.verdict == "copy"
    await queue.report([("2", second.token, "a")])
    assert await stage.client.exists(queue.keys.apps) == 0


async def test_only_unsettled_messages_can_be_asked_to_be_forgotten(stage: Stage) -> None:
    queue = await stage.queue()
    tokens = await track(queue, message("1"), message("2"), message("3"))
    await queue.report([("1", tokens[0], "a"), ("2", tokens[1], "n1")])
    all_three = [(str(i + 1), token) for i, token in enumerate(tokens)]
    assert set(await queue.untrack(all_three, only_unsettled=True)) == {"3"}
    assert set(await queue.untrack(all_three)) == {"1", "2"}
    assert await stage.client.exists(queue.keys.tracked, queue.keys.apps) == 0


async def test_the_newest_dead_letters_are_kept(stage: Stage) -> None:
    queue = await stage.queue()
    await queue.bury(["1", "2"], keep=3)
    await queue.bury(["3", "4"], keep=3)
    assert await stage.client.lrange(queue.keys.dead, 0, -1) == ["4", "3", "2"]


async def test_thousands_are_tracked_reported_and_forgotten_in_one_call_each(stage: Stage) -> None:
    queue = await stage.queue()
    count = 5_000
    tokens = await track(queue, *(message(str(i)) for i in range(count)))
    assert len(set(tokens)) == count
    assert sum([len(page) async for page in queue.all_tracked()]) == count
    assert await queue.report([(str(i), tokens[i], "a") for i in range(count)]) == count
    assert [s.broker_id for s in await queue.settled(applied=0, want=count)] == [str(i) for i in range(count)]
    assert len(await queue.untrack([(str(i), tokens[i]) for i in range(count)])) == count
    assert await queue.settled(applied=count, want=1) == []
    assert await stage.keys() == {queue.keys.owner}


async def test_forgetting_tells_the_newest_handle(stage: Stage) -> None:
    queue = await stage.queue()
    (token,) = await track(queue, message("1"))
    await queue.report([("1", token, "n5000")])
    (read,) = await queue.settled(applied=0, want=1)
    assert read.handle == "handle of 1"
    assert await verdict(queue, message("1", handle="of its redelivery")) == ["redelivered"]
    assert await queue.untrack([("1", token)]) == {"1": "of its redelivery"}
