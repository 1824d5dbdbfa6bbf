"""Where a group lives."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from fleet.broker.sqs.partition import fnv1a, partition_for


@pytest.mark.parametrize(("text", "hash_"), [("", 0x811C9DC5), ("a", 0xE40C292C), ("foobar", 0xBF9CF968)])
def test_the_hash_is_fnv_1a(text: str, hash_: int) -> None:
    assert fnv1a(text) == hash_


def test_a_group_is_hashed_as_utf_8() -> None:
    found = (0x811C9DC5 ^ 0xC3) * 0x01000193 % 2**32
    assert fnv1a("ü") == (found ^ 0xBC) * 0x01000193 % 2**32


def test_groups_spread_evenly() -> None:
    chance = random.Random(7)
    groups = {f"{chance.getrandbits(64):x}" for _ in range(100_000)}
    found = Counter(partition_for(group, partitions=8) for group in groups)
    even = len(groups) / 8
    assert sorted(found) == list(range(8))
    assert all(abs(count - even) <= 0.05 * even for count in found.values())


@pytest.mark.parametrize("partitions", [0, 1])
def test_one_partition_takes_everything(partitions: int) -> None:
    assert {partition_for(f"g{i}", partitions=partitions) for i in range(100)} == {0}


def test_one_limit_for_the_queue_or_no_group_is_partition_zero() -> None:
    assert {partition_for(f"g{i}", partitions=8, per_queue=True) for i in range(100)} == {0}
    assert partition_for("", partitions=8) == 0
