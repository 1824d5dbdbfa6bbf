"""Whether Redis takes writes: a server that answers every read may refuse each write."""

from __future__ import annotations

from redis import exceptions
from redis.asyncio.cluster import RedisCluster

from fleet.state.cluster import Cluster
from fleet.state.connect import Client, said, translated
from fleet.state.keys import PoolKeys

_NOBODYS = 2000
"""Names to look through for one on each node of a Cluster: each is in one of 16,384 slots."""


async def refusal(client: Client) -> str:
    """What it answers to a write, '' if it takes it. Nothing changes: what is deleted does not exist."""
    for key in _keys(client):
        with translated():
            try:
                await client.hdel(key, "")
            except exceptions.ResponseError as error:
                return said(error)
    return ""


def _keys(client: Client) -> list[str]:
    """One on each node."""
    names = (PoolKeys(f"nobody-{number}").settings for number in range(_NOBODYS))
    if not isinstance(client, Cluster):
        return [next(names)]
    # Including those that do not answer.
    wanted, found = {node.name for node in RedisCluster.get_primaries(client)}, []
    for key in names:
        if (node := client.node_of(key)) in wanted:
            found.append(key)
            wanted.remove(node)
    return found
