"""The fleet in Redis: who lives, which configuration is in place, which pools exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from fleet.errors import Fenced
from fleet.state.connect import Client, translated
from fleet.state.keys import CHANGED_CHANNEL, WAKE_CHANNEL, FleetKeys, PoolKeys
from fleet.state.scripts import SEP, script

_AT_ONCE = 2000
"""Words in one call."""


@dataclass(frozen=True, slots=True)
class ConfigRevision:
    revision: str
    body: bytes
    checked_ms: int


NEARLY_FULL = 0.9
"""Of Redis's memory. From here on nothing is taken in or published: the rest is for settling, which frees memory."""


class Registry:
    def __init__(self, client: Client, *, now_ms: str = "") -> None:
        self.client = client
        self.now_ms = now_ms

    async def beat(self, name: str, record: dict[str, Any], *, ttl_ms: int) -> set[str]:
        """Say that we live; returns the names of all that do."""
        body = msgspec.json.encode(record).decode()
        return await self._beat(name, body, ttl_ms)

    async def leave(self, name: str) -> None:
        await self._beat(name, "", 0)

    async def alive(self) -> set[str]:
        """The names of the living, for a caller that is not one of them."""
        return await self._beat("", "", 0)

    async def _beat(self, name: str, body: str, ttl_ms: int) -> set[str]:
        s = script("beat")
        return set(await s(self.client, s.keys_of(FleetKeys), [self.now_ms, name, ttl_ms, body]))

    async def processes(self) -> list[dict[str, Any]]:
        """What every living process says of itself."""
        alive = await self.alive()
        with translated():
            records = await self.client.hgetall(FleetKeys.processes)
        return [msgspec.json.decode(body) for name, body in sorted(records.items()) if name in alive]

    async def records(self, names: Sequence[str]) -> dict[str, dict[str, Any]]:
        """What these processes say of themselves, as far as they said anything."""
        if not names:
            return {}
        with translated():
            records = await self.client.hmget(FleetKeys.processes, list(names))
        return {name: msgspec.json.decode(body) for name, body in zip(names, records, strict=True) if body}

    async def publish_config(self, body: bytes, *, epoch: str = "") -> tuple[str, bool]:
        """Put a configuration in place; returns its revision and whether it is new. Announce it when its pools are set.

        Fenced if the syncers' lead is not held under this epoch; '' asks for none.
        """
        s = script("publish_config")
        revision, fresh = await s(self.client, s.keys_of(FleetKeys), [self.now_ms, epoch, body.decode()])
        if revision == "stale":
            raise Fenced("another syncer leads")
        return str(revision), bool(fresh)

    async def announce_config(self) -> None:
        """Tell everybody to look for a new revision."""
        with translated():
            await self.client.publish(CHANGED_CHANNEL, "config")

    async def wake(self, code: str, start: int, end: int) -> None:
        """Ask the workers at these places in the order of a pool to look there."""
        with translated():
            await self.client.publish(WAKE_CHANNEL, SEP.join((code, str(start), str(end))))

    async def config(self) -> ConfigRevision | None:
        with translated():
            revision, body, checked = await self.client.hmget(FleetKeys.config, ["revision", "body", "checked_ms"])
        if revision is None:
            return None
        return ConfigRevision(revision, body.encode(), int(checked or 0))

    async def revision(self) -> str:
        """The revision in place, '' for none."""
        with translated():
            return str(await self.client.hget(FleetKeys.config, "revision") or "")

    async def clock_ms(self) -> int:
        """The clock that everybody shares."""
        with translated():
            answer = await self.client.time()
        # A Cluster answers with every node's clock. They are near enough for anything but a lease.
        seconds, micros = next(iter(answer.values())) if isinstance(answer, dict) else answer
        return int(seconds) * 1000 + int(micros) // 1000

    async def queues(self) -> dict[str, bytes]:
        """Every queue that a coordinator has begun to read and not finished, with its configuration."""
        with translated():
            found = await self.client.hgetall(FleetKeys.queues)
        return {name: body.encode() for name, body in found.items()}

    async def remember_queue(self, name: str, body: bytes) -> None:
        with translated():
            await self.client.hset(FleetKeys.queues, name, body)

    async def forget_queue(self, name: str) -> None:
        with translated():
            await self.client.hdel(FleetKeys.queues, name)

    async def pools(self) -> set[str]:
        with translated():
            return set(await self.client.smembers(FleetKeys.pools))

    async def pools_version(self) -> tuple[str, str]:
        """The revision in place, and a number that changes when any pool comes, goes, or changes its mark."""
        with translated():
            revision, counted = await self.client.hmget(FleetKeys.config, ["revision", "pools"])
        return revision or "", counted or ""

    async def add_pools(self, codes: set[str] | Mapping[str, str]) -> None:
        """Each with its mark (`known_pools.py`), or without."""
        marks = codes if isinstance(codes, Mapping) else dict.fromkeys(sorted(codes), "")
        await self._enlist([word for pair in marks.items() for word in pair])

    async def known_under(self, revision: str, codes: Sequence[str]) -> set[str]:
        """Those of the pools that have settings of this revision or a newer one, and are listed with their marks."""
        if not codes:
            return set()
        asked = self.client.pipeline(transaction=False)
        for code in codes:
            asked.hget(PoolKeys(code).settings, "revision")
        with translated():
            revisions = await asked.execute()
            marks = await self.client.hmget(FleetKeys.pool_marks, list(codes))
        found = zip(codes, revisions, marks, strict=True)
        return {code for code, has, mark in found if float(has or 0) >= float(revision) and mark is not None}

    async def forget_pool(self, code: str) -> None:
        await self._enlist([code, "gone"])

    async def _enlist(self, words: list[str]) -> None:
        s = script("enlist")
        for first in range(0, len(words), _AT_ONCE):
            await s(self.client, s.keys_of(FleetKeys), [self.now_ms, *words[first : first + _AT_ONCE]])

    async def memory_share(self) -> float:
        """How full Redis is, 0 where it has no limit; the fullest node counts."""
        with translated():
            info = await self.client.info("memory")
        nodes = [info] if "used_memory" in info else list(info.values())
        return max(
            (node["used_memory"] / node["maxmemory"] for node in nodes if node.get("maxmemory")),
            default=0.0,
        )
