"""What queues, topics and subscriptions of our own there are: records by name, changed only as they were seen."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Literal, NamedTuple

from fleet.state.connect import Client, translated
from fleet.state.keys import BrokerKeys
from fleet.state.scan import pages
from fleet.state.scripts import script

Table = Literal["topics", "subscriptions", "queues", "tasks", "leaving"]
_TABLES: Sequence[Table] = ("topics", "subscriptions", "queues", "tasks", "leaving")


class Change(NamedTuple):
    """What stands under a name, as text: '' for nothing."""

    table: Table
    name: str
    seen: str
    record: str


class Catalogue:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def get(self, table: Table, name: str) -> str:
        with translated():
            return await self._client.hget(_key(table), name) or ""

    async def get_many(self, table: Table, names: Sequence[str]) -> list[str]:
        if not names:
            return []
        with translated():
            return [record or "" for record in await self._client.hmget(_key(table), list(names))]

    async def all(self, table: Table) -> AsyncIterator[tuple[str, str]]:
        """Every entry, some hundred a call; one that is changed meanwhile may come in either state, or twice."""
        async for page in pages(self._client.hscan, _key(table), count=500):
            for name, record in page.items():
                yield name, record

    async def some(self, table: Table, cursor: int, *, count: int) -> tuple[int, list[str]]:
        """Some names from there on, and where to go on; 0 is the beginning, and comes behind the end."""
        with translated():
            cursor, page = await self._client.hscan(_key(table), cursor, count=count)
        return cursor, list(page)

    async def change(self, *changes: Change) -> bool:
        """All of them, or none: False where one is not what was seen."""
        arguments: list[str | int] = []
        for one in changes:
            arguments += (_TABLES.index(one.table) + 1, one.name, one.seen, one.record)
        s = script("catalogue")
        return bool(await s(self._client, s.keys_of(BrokerKeys), arguments))


def _key(table: Table) -> str:
    return str(getattr(BrokerKeys, table))
