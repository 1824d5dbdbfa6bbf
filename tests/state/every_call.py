"""One call of every wrapper, in an order in which each finds something to do."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fleet.clock import SystemClock
from fleet.lease import Lease
from fleet.metrics.counters import Counters
from fleet.state.breakers import SharedBreakers
from fleet.state.by_hand import PoolByHand
from fleet.state.catalogue import Catalogue, Change
from fleet.state.engine import Engine, Rules
from fleet.state.keys import FleetKeys, OwnQueueKeys
from fleet.state.look import look
from fleet.state.own_queue import Conclusion, NewMessage, OwnQueue
from fleet.state.scripts import SEP
from fleet.state.topic import Copies, Topic
from fleet.state.totals import Tally
from fleet.state.warnings import Warnings
from tests.state.stage import (
    OWNER_EPOCH,
    TTL_MS,
    Stage,
    claim_one,
    in_group,
    outboxed,
    pool_settings,
    settle,
    settlement,
)


async def every_call(stage: Stage, *, code: str = "P", name: str = "q") -> AsyncIterator[str]:
    """Yields the name of the script that is called next; goes on when asked for the one after."""
    pool = stage.unknown_pool(code)
    queue = await stage.queue(name)
    yield "configure"
    assert await pool.configure("1", pool_settings())
    yield "adjust"
    by_hand = PoolByHand(stage.client, code, now_ms=str(stage.now_ms))
    assert (await by_hand.adjust(concurrency=9)).changed
    yield "fence"
    assert await pool.fence(name, OWNER_EPOCH)
    yield "track"
    messages = in_group(2, queue=name)
    tracked = await queue.track([(m.broker_id, m.message_id, code, m.group, "handle") for m in messages])
    for message, tracking in zip(messages, tracked, strict=True):
        assert tracking.verdict == "new"
        message.token = tracking.token
    yield "expect"
    away = [f"{name}{SEP}{which}" for which in ("away", "more")]
    assert await pool.expect(name, OWNER_EPOCH, [("r", "another", key, "hold") for key in away])
    for key in away:
        yield "expect_no_more"
        await pool.expect_no_more([("r", "another", key, "")])
    yield "submit"
    assert (await pool.submit(name, OWNER_EPOCH, messages)).accepted == 2
    yield "room"
    assert await pool.room(1) == 998
    yield "exchange"
    claimed = await claim_one(pool, chunk=2)
    yield "renew"
    assert await pool.renew("w", [(claimed.lane, claimed.epoch)], ttl_ms=TTL_MS) == []
    yield "exchange"
    done = settlement(claimed)
    assert (await settle(pool, done, call=7)).refused == set()
    yield "recall"
    assert [page async for page in pool.recall(name, 10)] == []
    yield "queued"
    flags, items = await pool.queued([messages[0].key])
    assert (flags, sorted(items)) == ([False], await outboxed(pool))
    yield "report"
    outcomes = [(m.broker_id, m.token, "a") for m in messages]
    assert await queue.report(outcomes) == 2
    yield "trim_outbox"
    assert await pool.trim_outbox("w", [7]) == 0
    yield "settled"
    assert len(await queue.settled(applied=0, want=9)) == 2
    yield "untrack"
    assert len(await queue.untrack([outcome[:2] for outcome in outcomes])) == 2
    yield "release"
    aside = in_group(2, queue=name, token="9")
    assert (await pool.submit(name, OWNER_EPOCH, aside)).accepted == 2
    waits = await claim_one(pool)
    await settle(pool, settlement(waits, count=0, release="1000"), call=8)
    assert await by_hand.release("g") == "released"
    yield "skip"
    for message in aside:
        skipped = await by_hand.skip(message, "{}")
        assert skipped.tag == "skipped"
        await by_hand.report(message, "{}", skipped.operator)
    yield "bury"
    await queue.bury(["letter"], keep=1)
    yield "pause"
    assert await by_hand.pause(True)
    await pool.configure("2", pool_settings(draining=True))
    yield "remove"
    assert await pool.remove("2") == "gone"
    yield "lease"
    lease = Lease(client=stage.client, key=FleetKeys.leader, owner="me", ttl_ms=TTL_MS, clock=SystemClock())
    assert await lease.acquire()
    yield "beat"
    assert await stage.registry().beat("me", {}, ttl_ms=TTL_MS) == {"me"}
    yield "breaker"
    assert (await SharedBreakers(stage.client).open("http://a", "me", for_ms=1)).tag == "open"
    yield "publish_config"
    assert (await stage.registry().publish_config(code.encode()))[1]
    yield "enlist"
    await stage.registry().add_pools({code: "mark"})
    yield "look"
    assert [one.code for one in await look(stage.client, [code])] == [code]
    yield "warn"
    warnings = Warnings(stage.client, now_ms=str(stage.now_ms))
    warning = await warnings.add("C", "WARN", code, name)
    yield "acknowledge"
    assert await warnings.acknowledge(warning)
    own = OwnQueue(stage.client, name, now_ms=str(stage.now_ms))
    yield "own/send"
    assert all(await own.send([NewMessage(b"one", "g", "dedup"), NewMessage(b"two")], producer="feed", epoch=1))
    yield "own/receive"
    shown, _ = await own.receive(10, visibility_ms=TTL_MS)
    assert {one.body for one in shown} == {b"one", b"two"}
    yield "own/conclude"
    assert await own.conclude([Conclusion(one.number, one.count, one.group, "show") for one in shown]) == [
        True,
        True,
    ]
    yield "own/depth"
    assert (await own.contents()).messages == 2
    yield "own/purge"
    await own.purge()
    yield "own/clear"
    broker = Engine(stage.client, OwnQueueKeys(name), kind="o", incarnation=1, now_ms=str(stage.now_ms))
    await broker.clear()
    yield "own/establish"
    await broker.establish()
    yield "own/arrive"
    assert await broker.arrive([(1, 7, "g", "tbody")], source="another", origin="another") == 1
    await broker.receive(1, Rules(0))
    await broker.receive(1, Rules(0, max_count=1, target="third"))
    yield "own/leave"
    (moving,) = await broker.outgoing("third", 10)
    assert await broker.leave("third", moving.place) == 0
    yield "own/again"
    await broker.arrive([(2, 8, "g", "tbody")], source="another")
    (showing,) = (await broker.receive(1, Rules(1000))).showings
    await broker.note_attempt("attempt", [showing], "note", keep_ms=TTL_MS)
    assert await broker.again("attempt", visibility_ms=2000) == [(showing, "note")]
    yield "own/charge"
    charged = await broker.charge("Send", [1, 2], capacity=2.0, refill=1.0, idle_ms=TTL_MS)
    assert charged.wait_ms[0] == 0 < charged.wait_ms[1]
    yield "own/publish"
    topic = Topic(stage.client, name, incarnation=1, version=1, now_ms=str(stage.now_ms))
    await topic.establish()
    yield "own/seek"
    await topic.subscription(name, incarnation=1, version=1).establish()
    assert await topic.subscription(name, incarnation=1, version=1).seek(0) == 0
    yield "catalogue"
    assert await Catalogue(stage.client).change(Change("topics", name, "", "record"))
    yield "own/publish"
    assert len((await topic.publish([Copies("tbody", "g", [(0, True)])], [name])).numbers) == 1
    yield "tally"
    counters = Counters()
    counters.add("pool", code, "SUCCESS")
    await Tally(stage.client, name, counters).tell_all(now_ms=0)
