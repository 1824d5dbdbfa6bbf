"""Whether Redis takes writes: one that answers every question may refuse each of them."""

from __future__ import annotations

from redis import exceptions
from redis.asyncio.cluster import RedisCluster

from fleet.state.cluster import Cluster
from fleet.state.connect import Client, said, translated
from fleet.state.keys import PoolKeys

_NOBODYS = 2000
"""Names to look through for one on each node of a Cluster: each is a slot of some 16,384."""


async def refusal(client: Client) -> str:
    """What it answers to a write, '' where it takes it. Nothing changes: what is deleted is not there."""
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
    # Also those that do not answer.
    wanted, found = {node.name for node in RedisCluster.get_primaries(client)}, []
    for key in names:
        if (node := client.node_of(key)) in wanted:
            found.append(key)
            wanted.remove(node)
    return found
