"""What was taken from a source and never submitted: expected again, before what is newer of its lane."""

from __future__ import annotations

from fleet.state.pool import AWAY_GRACE_MS, Pool
from tests.state.stage import OWNER_EPOCH, Stage, drain, pool_settings, submit
from tests.state.test_away import come, of_group


async def expect(pool: Pool, *names: str, owner_epoch: str = OWNER_EPOCH) -> bool:
    return await pool.expect("q", owner_epoch, [("r", "g", f"q\x1f{name}", "") for name in names])


async def test_what_is_newer_waits_for_it(stage: Stage) -> None:
    pool = await stage.pool(on_failure="hold")
    assert await expect(pool, "g1", "g2")
    assert set((await come(pool, 3)).behind) == {0}
    assert (await come(pool, 1, 2, 3)).behind == {}


async def test_what_is_expected_once_more_is_given_its_time_anew(stage: Stage) -> None:
    pool = await stage.pool(on_failure="hold")
    await expect(pool, "g1")
    stage.advance(AWAY_GRACE_MS + 1)
    assert set((await come(pool, 2)).behind) == {0}, "it has a second chance"
    stage.advance(AWAY_GRACE_MS - 1000)
    await expect(pool, "g1")
    stage.advance(2000)
    assert set((await come(pool, 2)).behind) == {0}
    stage.advance(AWAY_GRACE_MS)
    assert set((await come(pool, 2)).behind) == {0}, "and its second chance"


async def test_what_never_comes_is_given_up_in_a_pool_that_is_full_now_and_then(stage: Stage) -> None:
    pool = await stage.pool(capacity=10, on_failure="hold")
    await expect(pool, "g1")
    for cycle in range(10):
        stage.advance(AWAY_GRACE_MS // 3)
        await submit(pool, of_group(*range(cycle * 100, cycle * 100 + 10), group="x"))
        share = [*of_group(0, group=f"y{cycle}"), *of_group(2)]
        assert (await pool.submit("q", OWNER_EPOCH, share)).accepted == 0
        await drain(pool)
        if not (await come(pool, 2)).behind:
            break
    assert 6 <= cycle < 9
    assert await drain(pool) == ["g2"]


async def test_an_older_owner_expects_nothing(stage: Stage) -> None:
    pool = await stage.pool(on_failure="hold")
    assert await pool.fence("q", OWNER_EPOCH)
    assert not await expect(pool, "g1", owner_epoch=str(int(OWNER_EPOCH) - 1))
    assert (await come(pool, 2)).behind == {}


async def test_a_copy_that_came_and_was_acked_is_expected_no_more(stage: Stage) -> None:
    pool = await stage.pool(on_failure="hold")
    await expect(pool, "g1", "g2", "g3")
    await pool.expect_no_more([("r", "g", "q\x1fg2", ""), ("h", "g", "q\x1fg1", ""), ("r", "other", "q\x1fg1", "")])
    assert (await come(pool, 1, 3, 4)).behind == {}
    await expect(pool, "g5", "g6", "g7", "g8")
    await pool.expect_no_more([("r", "g", "q\x1fg6", "q\x1fg10"), ("r", "g", "q\x1fg7", "q\x1fg5")])
    assert (await come(pool, 5, 10, 8)).behind == {}
    await expect(pool, "g11", "g12", "g13")
    await pool.expect_no_more([("r", "g", "q\x1fg11", "q\x1fg13")])
    assert await stage.client.pttl(pool.keys.away_lane + "rg") > 0
    assert (await come(pool, 13, 12)).behind == {}, "it stood behind another, and takes the place of its copy"
    await expect(pool, "g5")
    await pool.expect_no_more([("r", "g", "q\x1fg5", "")])
    assert (await come(pool, 6)).behind == {}
    assert await stage.client.exists(pool.keys.away, pool.keys.away_lane + "rg") == 0


async def test_a_copy_that_came_shows_that_what_is_behind_it_comes_too(stage: Stage) -> None:
    pool = await stage.pool(on_failure="hold")
    await expect(pool, "g1", "g2", "g3")
    stage.advance(AWAY_GRACE_MS + 1)
    assert set((await come(pool, 9)).behind) == {0}
    assert await stage.client.pttl(pool.keys.away_lane + "xrg") > 0
    await pool.expect_no_more([("r", "g", "q\x1fg1", "")])
    assert not await stage.client.exists(pool.keys.away_lane + "xrg")
    stage.advance(AWAY_GRACE_MS + 1)
    assert set((await come(pool, 9)).behind) == {0}, "its second chance begins here"
    assert (await come(pool, 2, 3, 9)).behind == {}


async def test_what_was_awaited_in_a_pool_that_is_unknown_is_not_late_there(stage: Stage) -> None:
    pool = stage.unknown_pool("P")
    await come(pool, 0, 1)
    await come(pool, 2, 3)
    stage.advance(AWAY_GRACE_MS + 1)
    await pool.configure("1", pool_settings(on_failure="hold"))
    assert (await come(pool, 0, 1, 2, 3)).behind == {}
    assert await drain(pool) == ["g0", "g1", "g2", "g3"]


async def test_what_comes_as_it_would_be_given_up_is_not(stage: Stage) -> None:
    pool = await stage.pool(on_failure="hold")
    await expect(pool, "g5", "g6")
    stage.advance(AWAY_GRACE_MS + 1)
    assert set((await come(pool, 7)).behind) == {0}
    stage.advance(AWAY_GRACE_MS + 1)
    assert (await come(pool, 5, 6, 7)).behind == {}
    assert await drain(pool) == ["g5", "g6", "g7"]
