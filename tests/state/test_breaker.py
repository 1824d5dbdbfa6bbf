"""A circuit breaker that a whole fleet shares: who may probe, and what closes it."""

from __future__ import annotations

import pytest

from fleet.state import breakers as module
from fleet.state.breakers import BreakerRules, BreakerView, Shared, SharedBreakers, heard
from fleet.state.connect import Client
from fleet.state.keys import BREAKER_CHANNEL, FleetKeys
from tests.state.stage import NOON_MS, Stage, hearing

ORIGIN, OTHER = "https://a.example", "http://b.example:8080"
OPEN_MS, PERMIT_MS = 5000, 10_000


class Board(SharedBreakers):
    """The breakers, under a clock that a test moves."""

    def __init__(self, client: Client) -> None:
        super().__init__(client, rules=BreakerRules(), permit_ms=PERMIT_MS, now_ms=str(NOON_MS))

    def advance(self, ms: int) -> None:
        self.now_ms = str(int(self.now_ms) + ms)

    async def opened(self, origin: str = ORIGIN) -> None:
        answer = await self.open(origin, "a", for_ms=OPEN_MS)
        assert (answer.tag, answer.left_ms) == ("open", OPEN_MS)

    async def half_open(self) -> None:
        await self.opened()
        self.advance(OPEN_MS)

    async def permit(self, worker: str = "a") -> str:
        answer = await self.ask(ORIGIN, worker)
        assert answer.tag == "granted"
        return answer.epoch

    async def views(self) -> list[BreakerView]:
        return (await self.all())[1]


@pytest.fixture
def board(stage: Stage) -> Board:
    return Board(stage.client)


async def test_what_nobody_has_opened_is_closed(board: Board) -> None:
    assert (await board.ask(ORIGIN, "a")).tag == "closed"
    assert await board.views() == []


async def test_the_first_to_open_says_for_how_long(board: Board) -> None:
    await board.opened()
    board.advance(2000)
    answer = await board.open(ORIGIN, "b", for_ms=OPEN_MS)
    assert answer == Shared("open", NOON_MS + 2000, OPEN_MS - 2000)


async def test_nobody_probes_before_the_time_and_anybody_from_then_on(board: Board) -> None:
    await board.opened()
    board.advance(OPEN_MS - 1)
    assert (await board.ask(ORIGIN, "b")).tag == "open"
    board.advance(1)
    assert (await board.ask(ORIGIN, "b")).tag == "granted"


async def test_one_probe_at_a_time_across_the_fleet(board: Board) -> None:
    await board.half_open()
    epoch = await board.permit("a")
    board.advance(1000)
    refused = await board.ask(ORIGIN, "b")
    assert (refused.tag, refused.left_ms) == ("taken", PERMIT_MS - 1000)
    assert (await board.judge(ORIGIN, "a", epoch, ok=True)).tag == "half"
    assert (await board.ask(ORIGIN, "b")).tag == "granted"


async def test_the_permit_of_a_prober_that_was_killed_is_free_at_its_deadline_and_not_before(board: Board) -> None:
    await board.half_open()
    first = await board.permit("a")
    board.advance(PERMIT_MS - 1)
    assert (await board.ask(ORIGIN, "b")).tag == "taken"
    board.advance(1)
    second = await board.permit("b")
    assert int(second) > int(first)


async def test_a_prober_that_wakes_up_after_its_permit_went_to_another_changes_nothing(board: Board) -> None:
    await board.half_open()
    old = await board.permit("a")
    board.advance(PERMIT_MS)
    await board.permit("b")
    for ok in (True, False):
        answer = await board.judge(ORIGIN, "a", old, ok=ok)
        assert (answer.tag, answer.successes) == ("taken", 0)
    assert (await board.renew(ORIGIN, "a", old)).tag == "taken"
    assert (await board.release(ORIGIN, "a", old)).tag == "taken"


async def test_renewing_keeps_the_permit_of_a_slow_probe(board: Board) -> None:
    await board.half_open()
    epoch = await board.permit("a")
    for _ in range(3):
        board.advance(PERMIT_MS - 1)
        assert (await board.renew(ORIGIN, "a", epoch)).tag == "kept"
    assert (await board.ask(ORIGIN, "b")).tag == "taken"
    board.advance(PERMIT_MS)
    assert (await board.renew(ORIGIN, "a", epoch)).tag == "half"


async def test_a_permit_given_back_is_free_at_once_and_counts_for_nothing(board: Board) -> None:
    await board.half_open()
    released = await board.release(ORIGIN, "a", await board.permit("a"))
    assert (released.tag, released.successes) == ("half", 0)
    assert (await board.ask(ORIGIN, "b")).tag == "granted"


async def test_a_permit_asked_for_again_by_its_holder_voids_the_one_whose_reply_was_lost(board: Board) -> None:
    await board.half_open()
    lost, held = await board.permit("a"), await board.permit("a")
    assert (await board.judge(ORIGIN, "a", lost, ok=True)).successes == 0
    assert (await board.judge(ORIGIN, "a", held, ok=True)).successes == 1


async def test_three_successes_of_any_workers_close_it(board: Board) -> None:
    await board.half_open()
    for worker, expected in (("a", ("half", 1)), ("b", ("half", 2)), ("c", ("closed", 0))):
        answer = await board.judge(ORIGIN, worker, await board.permit(worker), ok=True)
        assert (answer.tag, answer.successes) == expected
    assert await board.views() == []
    assert (await board.ask(ORIGIN, "a")).tag == "closed"


async def test_a_success_said_twice_counts_once(board: Board) -> None:
    await board.half_open()
    epoch = await board.permit("a")
    for _ in range(4):
        assert (await board.judge(ORIGIN, "a", epoch, ok=True)).successes == 1


async def test_a_probe_that_fails_opens_it_anew_and_the_successes_begin_again(board: Board) -> None:
    await board.half_open()
    for _ in range(2):
        await board.judge(ORIGIN, "a", await board.permit(), ok=True)
    assert await board.judge(ORIGIN, "a", await board.permit(), ok=False) == Shared(
        "open", NOON_MS + OPEN_MS, OPEN_MS, 0
    )
    board.advance(OPEN_MS)
    assert (await board.ask(ORIGIN, "b")).successes == 0


async def test_a_worker_that_missed_it_and_finds_it_failing_opens_it_again(board: Board) -> None:
    await board.half_open()
    old = await board.permit("a")
    assert (await board.open(ORIGIN, "b", for_ms=OPEN_MS)).tag == "open"
    assert (await board.judge(ORIGIN, "a", old, ok=True)).tag == "open"
    (view,) = await board.views()
    assert (view.openings, view.successes, view.since_ms) == (2, 0, NOON_MS)


async def test_openings_and_closings_are_heard_by_everybody(stage: Stage, board: Board) -> None:
    async with hearing(stage, BREAKER_CHANNEL) as channel:
        await board.half_open()
        for _ in range(3):
            await board.judge(ORIGIN, "a", await board.permit(), ok=True)
        said = [heard(message) for message in await channel.since(FleetKeys.breakers)]
        assert said == [
            (ORIGIN, Shared("open", NOON_MS, OPEN_MS)),
            (ORIGIN, Shared("closed", NOON_MS + OPEN_MS)),
        ]
        await board.opened(OTHER)
        await board.reset(OTHER)
        await board.reset_all()
        said = [heard(message) for message in await channel.since(FleetKeys.breakers)]
        assert [(origin, shared.tag) for origin, shared in said] == [(OTHER, "open"), (OTHER, "closed"), ("", "closed")]


async def test_what_is_said_twice_is_published_once(stage: Stage, board: Board) -> None:
    async with hearing(stage, BREAKER_CHANNEL) as channel:
        for worker in ("a", "b", "c"):
            await board.open(ORIGIN, worker, for_ms=OPEN_MS)
        assert len(await channel.since(FleetKeys.breakers)) == 1


async def test_a_reset_closes_one_or_all_and_voids_the_permit(stage: Stage, board: Board) -> None:
    await board.half_open()
    epoch = await board.permit()
    await board.opened(OTHER)
    await board.reset(ORIGIN)
    assert (await board.judge(ORIGIN, "a", epoch, ok=False)).tag == "closed"
    assert [view.origin for view in await board.views()] == [OTHER]
    await board.reset("")  # of no origin: nothing
    assert [view.origin for view in await board.views()] == [OTHER]
    await board.reset_all()
    assert await stage.keys() == set()


async def test_a_breaker_is_shown_as_redis_judges_it_now(board: Board) -> None:
    await board.opened()
    (view,) = await board.views()
    assert view.to_json() == {
        "origin": ORIGIN,
        "state": "OPEN",
        "retryAfterMs": OPEN_MS,
        "successes": 0,
        "openings": 1,
        "openSince": "2023-11-14T22:13:20.000Z",
        "prober": None,
    }
    board.advance(OPEN_MS)
    await board.permit("w1")
    (view,) = await board.views()
    assert (view.state, view.retry_after_ms, view.prober) == ("half-open", 0, "w1")
    board.advance(PERMIT_MS)
    assert (await board.views())[0].prober == ""


async def test_what_nobody_has_asked_about_for_an_hour_is_forgotten(board: Board) -> None:
    await board.opened()
    board.advance(module.IDLE_MS - 1)
    await board.opened(OTHER)
    assert {view.origin for view in await board.views()} == {ORIGIN, OTHER}
    await board.reset(OTHER)
    board.advance(1)
    await board.opened(OTHER)
    assert [view.origin for view in await board.views()] == [OTHER]


async def test_beyond_the_limit_the_one_seen_longest_ago_goes(
    stage: Stage, board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_ORIGINS", 3)
    for i in range(5):
        await board.opened(f"http://{i}")
        board.advance(1)
    assert [view.origin for view in await board.views()] == ["http://2", "http://3", "http://4"]
    assert await stage.client.zcard(FleetKeys.breakers_seen) == 3
