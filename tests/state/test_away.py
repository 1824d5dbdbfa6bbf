"""What went back to a source that holds no groups: nothing newer of its group is taken before it is here again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet.state.entry import Entry
from fleet.state.pool import AWAY_GRACE_MS, Pool, Settlement, Submitted, in_place
from tests.state.stage import OWNER_EPOCH, Stage, claim_one, drain, entry, pool_settings, settle, submit

FULL_MS = 30_000


def of_group(*numbers: int, group: str = "g", policy: str = "", high: bool = False) -> list[Entry]:
    """From a source that holds no groups."""
    return [replace(entry(f"{group}{n}", group, high=high), source_holds_groups=False, policy=policy) for n in numbers]


async def come(pool: Pool, *numbers: int, group: str = "g") -> Submitted:
    return await pool.submit("q", OWNER_EPOCH, of_group(*numbers, group=group))


async def recalled(pool: Pool) -> list[str]:
    return [broker for page in [taken async for taken in pool.recall("q", 100)] for broker, _ in page]


async def a_tail_away(stage: Stage, *, delay_ms: int = 5_000) -> Pool:
    """m0 to m4 wait in place, m5 and m6 went back to their source."""
    pool = await stage.pool(capacity=20, on_failure="hold")
    await submit(pool, of_group(*range(7)))
    claimed = await claim_one(pool)
    answer = await settle(pool, Settlement("g", claimed.epoch, [], in_place(delay_ms)))
    assert [item.split("\x1f")[1] for item in answer.cascaded] == ["g5", "g6"]
    return pool


async def test_a_newer_message_waits_until_the_tail_is_back(stage: Stage) -> None:
    pool = await a_tail_away(stage)
    assert (await come(pool, 7, 8)).behind == {0: 5_000, 1: 5_000}
    stage.advance(5_000)
    assert await drain(pool) == ["g0", "g1", "g2", "g3", "g4"]
    assert (await come(pool, 8)).behind == {0: 1_000}
    assert (await come(pool, 6, 5)).behind == {0: 1_000}, "6 came before its turn"
    assert (await come(pool, 6, 7, 8)).behind == {}
    assert await drain(pool) == ["g5", "g6", "g7", "g8"]
    assert await stage.client.exists(pool.keys.away, pool.keys.away_lane + "rg") == 0
    assert (await come(pool, 9)).behind == {}


async def test_what_was_refused_behind_a_tail_keeps_its_order_too(stage: Stage) -> None:
    pool = await a_tail_away(stage)
    await come(pool, 7)
    stage.advance(5_000)
    await drain(pool)
    assert (await come(pool, 5, 6, 8)).behind == {2: 1_000}, "7 was here before 8"
    assert (await come(pool, 7, 8)).behind == {}
    assert await drain(pool) == ["g5", "g6", "g7", "g8"]


async def test_a_message_of_another_group_or_of_high_priority_waits_for_nobody(stage: Stage) -> None:
    pool = await a_tail_away(stage)
    answer = await pool.submit("q", OWNER_EPOCH, of_group(0, group="h"))
    assert (answer.accepted, answer.behind) == (1, {})
    stage.advance(5_000)
    await drain(pool)
    assert (await pool.submit("q", OWNER_EPOCH, of_group(9, high=True))).behind == {}


async def test_what_does_not_fit_again_is_waited_for_again(stage: Stage) -> None:
    pool = await stage.pool(capacity=3, on_failure="hold")
    await submit(pool, of_group(0, 1))
    assert (await come(pool, 2, 3)).accepted == 0
    stage.advance(FULL_MS)
    assert (await come(pool, 2, 3)).accepted == 0
    await drain(pool)
    stage.advance(FULL_MS + AWAY_GRACE_MS)
    assert (await come(pool, 4)).behind == {0: 1_000}
    stage.advance(1)
    assert (await come(pool, 4)).behind == {0: 1_000}, "it is late, and has a second chance"
    stage.advance(AWAY_GRACE_MS + 1)
    assert (await come(pool, 4)).behind == {}, "its source lost them"


async def test_what_does_not_fit_comes_again_before_what_is_newer(stage: Stage) -> None:
    pool = await stage.pool(capacity=3, on_failure="hold")
    await submit(pool, of_group(0, 1))
    answer = await pool.submit("q", OWNER_EPOCH, [*of_group(2, 3)])
    assert answer.accepted == 0
    await drain(pool)
    assert (await come(pool, 4)).behind == {0: FULL_MS}
    assert (await come(pool, 2, 3)).behind == {}
    assert await drain(pool) == ["g2", "g3"]
    assert (await come(pool, 4)).behind == {}


async def test_a_refused_share_takes_nobody_off_the_list(stage: Stage) -> None:
    pool = await stage.pool(capacity=2, on_failure="hold")
    await submit(pool, of_group(0, 1, group="other"))
    assert (await come(pool, 0, 1)).accepted == 0
    assert (await come(pool, 0, 1)).accepted == 0
    await drain(pool)
    assert (await come(pool, 1, 0)).behind == {0: FULL_MS}
    assert (await come(pool, 1)).behind == {}
    assert await drain(pool) == ["g0", "g1"]


@pytest.mark.parametrize(
    ("policy", "pool_policy", "waits"),
    [("hold", "return", True), ("", "park", True), ("", "return", False), ("skip", "hold", False)],
)
async def test_order_is_kept_where_the_message_or_its_pool_promises_it(
    stage: Stage, policy: str, pool_policy: str, waits: bool
) -> None:
    pool = await stage.pool(capacity=1, on_failure=pool_policy)
    await submit(pool, of_group(0, group="other"))
    assert (await pool.submit("q", OWNER_EPOCH, of_group(0, policy=policy))).accepted == 0
    await drain(pool)
    assert bool((await pool.submit("q", OWNER_EPOCH, of_group(1, policy=policy))).behind) == waits


async def test_a_source_that_holds_the_group_keeps_the_order_itself(stage: Stage) -> None:
    pool = await stage.pool(capacity=1, on_failure="hold")
    await submit(pool, [entry("x", "other")])
    assert (await pool.submit("q", OWNER_EPOCH, [entry("0")])).accepted == 0
    await drain(pool)
    assert (await pool.submit("q", OWNER_EPOCH, [entry("1")])).behind == {}


async def test_what_asks_for_no_order_is_never_waited_for(stage: Stage) -> None:
    pool = await stage.pool(capacity=1, on_failure="hold")
    await submit(pool, of_group(0, group="other"))
    assert (await pool.submit("q", OWNER_EPOCH, of_group(0, group="\x1ealone"))).accepted == 0
    assert not await stage.client.exists(pool.keys.away)


async def test_a_group_goes_on_when_what_was_away_does_not_come_again(stage: Stage) -> None:
    pool = await a_tail_away(stage)
    stage.advance(5_000)
    await drain(pool)
    for chance in range(2):  # once it is late it is waited for a second time: a clock may have stepped
        stage.advance(AWAY_GRACE_MS)
        assert (await come(pool, 7)).behind == {0: 1_000}
        stage.advance(1)
        assert (await come(pool, 7)).behind == ({0: 1_000} if chance == 0 else {})
    assert await drain(pool) == ["g7"]
    assert await stage.client.exists(pool.keys.away, pool.keys.away_lane + "rg") == 0


async def test_what_waited_for_what_never_comes_keeps_its_order(stage: Stage) -> None:
    pool = await a_tail_away(stage)
    stage.advance(5_000)
    await drain(pool)
    stage.advance(AWAY_GRACE_MS + 1)
    assert set((await come(pool, 6, 7, 8)).behind) == {0, 1, 2}, "5 is late"
    assert await stage.client.exists(pool.keys.away_lane + "xrg")
    stage.advance(AWAY_GRACE_MS + 1)
    assert set((await come(pool, 8)).behind) == {0}, "5 is given up, and 6 and 7 came before 8"
    assert set((await come(pool, 7)).behind) == {0}
    assert (await come(pool, 6, 7, 8)).behind == {}
    assert await drain(pool) == ["g6", "g7", "g8"]
    assert await stage.client.exists(*(pool.keys.away_lane + name for name in ("rg", "xrg")), pool.keys.away) == 0


async def test_what_waited_and_was_lost_then_is_given_up_as_well(stage: Stage) -> None:
    pool = await a_tail_away(stage)
    stage.advance(5_000)
    await drain(pool)
    stage.advance(AWAY_GRACE_MS + 1)
    await come(pool, 6)
    for _ in range(3):
        assert set((await come(pool, 7)).behind) == {0}
        stage.advance(AWAY_GRACE_MS + 1)
    assert (await come(pool, 7, 8)).behind == {}


async def test_a_second_chance_is_over_once_what_is_late_was_put_off_anew(stage: Stage) -> None:
    pool = await stage.pool(capacity=3, on_failure="hold")
    await submit(pool, of_group(0, 1, group="other"))
    assert (await come(pool, 5, 6)).accepted == 0
    stage.advance(FULL_MS + AWAY_GRACE_MS + 1)
    assert (await come(pool, 5, 6)).accepted == 0, "late, and there is no room"
    assert (await come(pool, 5, 6, 7, 8)).accepted == 0
    await drain(pool)
    stage.advance(FULL_MS + AWAY_GRACE_MS + 1)
    assert set((await come(pool, 6, 7, 8)).behind) == {0, 1, 2}
    stage.advance(AWAY_GRACE_MS)
    assert set((await come(pool, 8)).behind) == {0}
    stage.advance(1)
    assert set((await come(pool, 8)).behind) == {0}, "6 and 7 came before it"
    assert (await come(pool, 6, 7, 8)).behind == {}
    assert await drain(pool) == ["g6", "g7", "g8"]


async def test_what_came_meanwhile_is_noted_once_and_as_far_as_it_is_away(stage: Stage) -> None:
    pool = await stage.pool(on_failure="hold", capacity=20_000)
    await pool.expect("q", OWNER_EPOCH, [("r", "g", f"q\x1fg{n}", "") for n in range(9_998)])
    stage.advance(AWAY_GRACE_MS + 1)
    for _ in range(2):
        assert len((await come(pool, *range(9_996, 10_006))).behind) == 10
    came = await stage.client.smembers(pool.keys.away_lane + "xrg")
    assert {key.split("g")[1] for key in came} == {str(n) for n in range(9_996, 10_000)}


async def test_a_clock_that_steps_forward_makes_nobody_late(stage: Stage) -> None:
    pool = await a_tail_away(stage)
    stage.advance(3_600_000)
    await drain(pool)
    assert (await come(pool, 7)).behind == {0: 1_000}
    assert (await come(pool, 5, 6)).behind == {}
    assert (await come(pool, 7)).behind == {}
    assert await drain(pool) == ["g5", "g6", "g7"]
    assert await stage.client.exists(pool.keys.away, pool.keys.away_lane + "rg") == 0


async def test_a_source_without_any_order_is_waited_for_in_no_order(stage: Stage) -> None:
    pool = await stage.pool(capacity=1, on_failure="hold")
    await submit(pool, of_group(0, group="other"))
    messages = [replace(message, source_has_order=False) for message in of_group(0, 1)]
    assert (await pool.submit("q", OWNER_EPOCH, messages[:1])).accepted == 0
    await drain(pool)
    assert (await pool.submit("q", OWNER_EPOCH, messages[1:])).behind == {}


async def test_what_comes_before_its_pool_is_known_comes_again_first(stage: Stage) -> None:
    pool = stage.unknown_pool("P")
    assert (await come(pool, 0, 1)).tag == "unknown"
    await pool.configure("1", pool_settings(on_failure="hold"))
    assert (await come(pool, 2)).behind == {0: 1_000}
    assert (await come(pool, 0, 1, 2)).behind == {}
    assert await drain(pool) == ["g0", "g1", "g2"]


async def test_what_a_stopping_coordinator_takes_back_is_older_than_what_is_away(stage: Stage) -> None:
    pool = await a_tail_away(stage)
    assert await recalled(pool) == ["g0", "g1", "g2", "g3", "g4"]
    assert (await come(pool, 7)).behind == {0: 5_000}
    assert (await come(pool, *range(8))).behind == {}
    assert await drain(pool) == [f"g{n}" for n in range(8)]


async def test_a_second_tail_stands_before_the_first(stage: Stage) -> None:
    pool = await a_tail_away(stage, delay_ms=10)
    stage.advance(10)
    await pool.configure("2", pool_settings(capacity=8, on_failure="hold"))
    again = await claim_one(pool)
    answer = await settle(pool, Settlement("g", again.epoch, [], in_place(10)))
    assert [item.split("\x1f")[1] for item in answer.cascaded] == ["g2", "g3", "g4"]
    stage.advance(10)
    assert await drain(pool) == ["g0", "g1"]
    assert set((await come(pool, 5)).behind) == {0}
    assert (await come(pool, 2, 3, 4, 5, 6)).behind == {}
    assert await drain(pool) == ["g2", "g3", "g4", "g5", "g6"]


async def test_a_removed_pool_leaves_nothing_of_what_was_away(stage: Stage) -> None:
    pool = await a_tail_away(stage)
    await drain(pool)
    await recalled(pool)
    await pool.configure("2", pool_settings(draining=True))
    await pool.trim_outbox("w", list(await pool.outbox("w")))
    assert await pool.remove("2") == "gone"
    assert await stage.keys() == {pool.keys.epochs}


async def test_what_is_refused_with_its_share_is_noted_in_its_order(stage: Stage) -> None:
    # A part of it would have been too early by itself, the rest would have been taken.
    pool = await stage.pool(capacity=20, on_failure="hold")
    await submit(pool, of_group(0, 1, 2, 3))
    claimed = await claim_one(pool)
    await settle(pool, Settlement("g", claimed.epoch, [], in_place(5_000)))
    await submit(pool, [*of_group(*range(13), group="other")])
    share = [*of_group(4, 5), *of_group(*range(7), group="more")]
    assert (await pool.submit("q", OWNER_EPOCH, share)).accepted == 0
    stage.advance(5_000)
    await drain(pool)
    assert (await come(pool, 5)).behind == {0: FULL_MS - 5_000}
    assert (await come(pool, 4, 5)).behind == {}
    assert await drain(pool) == ["g4", "g5"]


async def test_what_never_came_again_is_forgotten_after_two_days(stage: Stage) -> None:
    pool = await a_tail_away(stage)
    assert await stage.client.zscore(pool.keys.away, "rg") is not None
    stage.advance(2 * 24 * 3_600_000)
    assert await drain(pool) == ["g0", "g1", "g2", "g3", "g4"]
    assert await stage.client.zscore(pool.keys.away, "rg") is not None, "nothing else went back since"
    await submit(pool, of_group(*range(7), group="h"))
    claimed = await claim_one(pool)
    await settle(pool, Settlement("h", claimed.epoch, [], in_place(5_000)))
    assert await stage.client.zrange(pool.keys.away, 0, -1) == ["rh"]


async def test_what_comes_before_its_turn_holds_up_what_comes_after_it_in_the_same_share(stage: Stage) -> None:
    pool = await a_tail_away(stage)
    stage.advance(5_000)
    assert await drain(pool) == ["g0", "g1", "g2", "g3", "g4"]
    assert (await come(pool, 5)).behind == {}
    assert (await come(pool, 7, 6, 8)).behind == {0: 1_000, 2: 1_000}
    assert await drain(pool) == ["g5", "g6"]
    assert (await come(pool, 8, 7, 9)).behind == {0: 1_000, 2: 1_000}
    assert (await come(pool, 8, 9)).behind == {}
    assert await drain(pool) == ["g7", "g8", "g9"]


async def test_what_came_before_its_pool_was_known_waits_for_no_clock(stage: Stage) -> None:
    pool = Pool(stage.client, "P", now_ms=str(stage.now_ms))
    assert (await pool.submit("q", OWNER_EPOCH, of_group(0, 1))).tag == "unknown"
    stage.advance(-3_600_000)
    pool = await stage.pool(on_failure="hold")
    assert (await come(pool, 2)).behind == {0: 1_000}
    assert (await come(pool, 0, 1, 2)).behind == {}
    assert await drain(pool) == ["g0", "g1", "g2"]
