"""The groups of a pool as an onlooker sees them: read-only, and never more of them than were asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from fleet.state.connect import Client, translated
from fleet.state.entry import Entry, unpack
from fleet.state.keys import PoolKeys
from fleet.state.observe import pool_settings
from fleet.state.pool import PoolSettings
from fleet.state.registry import Registry
from fleet.state.scripts import SEP, number

RATE_WINDOW_MS = number("with/rate", "RATE_WINDOW_MS")
_AT_ONCE = 500

Standing = Literal["leased", "lapsed", "waiting", "ready"]


@dataclass(frozen=True, slots=True)
class GroupView:
    lane: str
    state: Standing
    """`lapsed`: its worker did not renew the lease, and the next claim in this pool takes it away."""
    regular: int
    high: int
    head: Entry
    """The message that is delivered next, or now."""
    oldest_ms: int
    """When the oldest of its messages came into the pool."""
    until_ms: int | None = None
    worker: str = ""
    epoch: str = ""

    @property
    def name(self) -> str | None:
        """None for a message that asks for no order: its lane is not a group."""
        return self.lane if self.lane.isprintable() else None

    @property
    def queued(self) -> int:
        return self.regular + self.high


@dataclass(frozen=True, slots=True)
class PoolNow:
    """A pool as the next claim finds it."""

    settings: PoolSettings
    paused: bool
    by_hand: bool
    """Something in it was changed by hand since its revision was published."""
    messages: int
    leases: int
    ready: int
    later: int
    now_ms: int
    permit_ms: int | None
    """When the rate limit has its next permit; None where it has one now, or where there is no limit."""


async def pool_now(client: Client, code: str, *, now_ms: str = "") -> PoolNow | None:
    """None where Redis has no such pool."""
    keys = PoolKeys(code)
    settings = (await pool_settings(client, [code])).get(code)
    if settings is None:
        return None
    now = int(now_ms) if now_ms else await Registry(client).clock_ms()
    pipeline = client.pipeline(transaction=False)
    pipeline.hmget(keys.settings, ["paused", "revision"])
    pipeline.hlen(keys.entries)
    pipeline.zcard(keys.leases)
    pipeline.llen(keys.ready)
    pipeline.zcard(keys.later)
    # The newest is first: another may go once the window of this one is over, whatever stands behind it.
    pipeline.lindex(keys.rate, (settings.rate_limit_per_minute or 1) - 1)
    with translated():
        (paused, revision), held, leases, ready, later, taken = await pipeline.execute()
    permit_ms = None
    if settings.rate_limit_per_minute is not None and taken is not None and int(taken) + RATE_WINDOW_MS > now:
        permit_ms = int(taken) + RATE_WINDOW_MS
    return PoolNow(
        settings, paused is not None, "." in (revision or ""), held, leases, ready, later, now, permit_ms
    )  # fmt: skip


async def groups(client: Client, code: str, *, limit: int, now_ms: str = "") -> list[GroupView]:
    """First those that wait for a time, the soonest first; then those under way; then those that wait for a worker.

    `limit` 0 means all of them.
    """
    keys = PoolKeys(code)
    lanes: dict[str, None] = {}
    for key in (keys.later, keys.leases, keys.ready):
        last = limit - len(lanes) - 1 if limit else -1
        if limit and last < 0:
            break
        with translated():
            found = await (client.lrange if key == keys.ready else client.zrange)(key, 0, last)
        lanes.update(dict.fromkeys(found))
    return await _views(client, code, list(lanes), now_ms)


async def group(client: Client, code: str, lane: str, *, now_ms: str = "") -> GroupView | None:
    """None where the pool holds no message of it."""
    return next(iter(await _views(client, code, [lane], now_ms)), None)


async def pools_with(client: Client, codes: Sequence[str], lane: str) -> list[str]:
    """Those of the pools that hold messages of a group."""
    found: list[str] = []
    for first in range(0, len(codes), _AT_ONCE):
        part = codes[first : first + _AT_ONCE]
        pipeline = client.pipeline(transaction=False)
        for keys in map(PoolKeys, part):
            pipeline.llen(keys.regular_lane + lane)
            pipeline.llen(keys.high_lane + lane)
        with translated():
            answers = await pipeline.execute()
        found += [code for i, code in enumerate(part) if answers[2 * i] or answers[2 * i + 1]]
    return found


async def lined_up(client: Client, code: str, lane: str) -> list[str]:
    """The keys of a group's entries, in the order of their delivery."""
    keys = PoolKeys(code)
    with translated():
        high = await client.lrange(keys.high_lane + lane, 0, -1)
        return [*high, *await client.lrange(keys.regular_lane + lane, 0, -1)]


async def entry(client: Client, code: str, lane: str, key: str) -> Entry | None:
    (found,) = await _entries(client, PoolKeys(code), [(key, lane, "r")])
    return found


async def _views(client: Client, code: str, lanes: list[str], now_ms: str) -> list[GroupView]:
    now = int(now_ms) if now_ms else await Registry(client).clock_ms()
    views: list[GroupView] = []
    for first in range(0, len(lanes), _AT_ONCE):
        views += await _page(client, PoolKeys(code), lanes[first : first + _AT_ONCE], now)
    return views


async def _page(client: Client, keys: PoolKeys, lanes: list[str], now_ms: int) -> list[GroupView]:
    pipeline = client.pipeline(transaction=False)
    for lane in lanes:
        for prefix in (keys.high_lane, keys.regular_lane):
            pipeline.llen(prefix + lane)
            pipeline.lindex(prefix + lane, 0)
        pipeline.zscore(keys.leases, lane)
        pipeline.zscore(keys.later, lane)
        pipeline.hget(keys.owners, lane)
    with translated():
        answers = await pipeline.execute()
    records = [answers[i : i + 7] for i in range(0, len(answers), 7)]
    wanted = [
        (key, lane, tier)
        for lane, record in zip(lanes, records, strict=True)
        for key, tier in ((record[1], "h"), (record[3], "r"))
        if key
    ]
    entries = {
        (one[1], one[2]): found
        for one, found in zip(wanted, await _entries(client, keys, wanted), strict=True)
        if found is not None
    }
    views = []
    for lane, record in zip(lanes, records, strict=True):
        heads = [entries[lane, tier] for tier in ("h", "r") if (lane, tier) in entries]
        if heads:  # else it became empty between two calls
            views.append(_view(lane, record, heads, now_ms))
    return views


def _view(lane: str, record: list[Any], heads: list[Entry], now_ms: int) -> GroupView:
    high, _, regular, _, lease, later, owner = record
    state: Standing = "ready"
    worker = epoch = ""
    until_ms = None
    head = heads[0]
    if lease is not None:
        until_ms = int(lease)
        state = "leased" if until_ms > now_ms else "lapsed"
        if owner:
            epoch, tier, worker = owner.split(SEP)
            # A high-priority message that came later is next, but it is not what is under way.
            head = next((one for one in heads if one.high_priority == (tier == "h")), head)
    elif later is not None and int(later) > now_ms:
        state, until_ms = "waiting", int(later)
    return GroupView(
        lane, state, regular, high, head, min(one.submitted_ms for one in heads), until_ms, worker, epoch
    )  # fmt: skip


async def _entries(client: Client, keys: PoolKeys, wanted: Sequence[tuple[str, str, str]]) -> list[Entry | None]:
    if not wanted:
        return []
    asked = [key for key, _, _ in wanted]
    with translated():
        values = await client.hmget(keys.entries, asked)
        tries = await client.hmget(keys.tries, asked)
    found: list[Entry | None] = []
    for (key, lane, tier), value, count in zip(wanted, values, tries, strict=True):
        one = unpack(key, value, lane, tier) if value else None
        if one is not None:
            one.tries = int(count or 0)
        found.append(one)
    return found
