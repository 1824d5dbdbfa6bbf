from __future__ import annotations

import os

from fleet.sources import ulid
from fleet.sources.ulid import UlidMaker


def test_ids_rise_within_a_millisecond_across_milliseconds_and_when_the_clock_steps_back() -> None:
    maker = UlidMaker()
    ids = [one for now_ms in (1000, 1000, 1001, 5, 1002) for one in maker.take(3000, now_ms)]
    assert ids == sorted(set(ids))


def test_an_id_holds_its_time_in_crockfords_alphabet() -> None:
    (one,) = UlidMaker().take(1, 1_469_918_176_385)
    assert len(one) == 26
    assert one.startswith("01ARYZ6S41")
    assert set(one) <= set("0123456789ABCDEFGHJKMNPQRSTVWXYZ")


def test_counting_on_carries_through_all_characters() -> None:
    maker = UlidMaker()
    maker.take(1, 1)
    maker._tail = (1 << 60) - 2
    assert [one[10:] for one in maker.take(3, 1)] == ["0000ZZZZZZZZZZZY", "0000ZZZZZZZZZZZZ", "0001000000000000"]


def test_a_forked_child_makes_other_ids_than_its_parent() -> None:
    ulid.take(1, 1 << 47)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, ulid.take(1, 1 << 47)[0].encode())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = os.read(read, 64).decode()
    os.close(read)
    os.close(write)
    assert len(theirs) == 26
    assert theirs != ulid.take(1, 1 << 47)[0]
