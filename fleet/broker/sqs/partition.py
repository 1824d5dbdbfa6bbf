"""Which partition of a FIFO queue a group lives in: FNV-1a over its id, so every front end says the same."""

from __future__ import annotations

from functools import lru_cache

COUNTS = (0, 1, 2, 4, 8, 16, 32)
"""Powers of two, so that the low bits of the hash are the partition. 0 and 1 mean the same."""
_OFFSET = 0x811C9DC5
_PRIME = 0x01000193


def partition_for(group: str, *, partitions: int, per_queue: bool = False) -> int:
    """`per_queue`: one throughput limit for the whole queue, so all of its groups share one partition."""
    if partitions <= 1 or per_queue or not group:
        return 0
    return fnv1a(group) & (partitions - 1)


@lru_cache(maxsize=65_536)
def fnv1a(text: str) -> int:
    found = _OFFSET
    for byte in text.encode():
        found = (found ^ byte) * _PRIME & 0xFFFFFFFF
    return found
