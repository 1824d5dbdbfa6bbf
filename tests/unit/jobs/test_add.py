"""A file on its way into the store: in batches, in order, and what is said where it breaks off."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fleet.errors import JobStoreUnavailable
from fleet.jobs.add import BATCH, BATCH_BYTES, Interrupted, Total, add
from fleet.jobs.read import Line
from fleet.jobs.records import Added


class Store:
    def __init__(self, fails_at: int = 10**9) -> None:
        self.batches: list[list[int]] = []
        self._fails_at = fails_at

    def put(self, given: Sequence[int]) -> Added:
        if len(self.batches) == self._fails_at:
            raise JobStoreUnavailable("the store is away")
        self.batches.append(list(given))
        return Added(tuple(map(str, given)))


def test_lines_go_in_order_and_in_batches_with_what_was_refused_left_out() -> None:
    store, seen = Store(), list[int]()
    lines = [Line(n, None if n == 5 else n, "why" if n == 5 else "") for n in range(1, 2 * BATCH + 2)]
    total = add(lines, store.put, on_progress=lambda now: seen.append(now.added))
    assert [len(batch) for batch in store.batches] == [BATCH - 1, BATCH, 1]
    assert [n for batch in store.batches for n in batch] == [line.number for line in lines if line.content]
    assert (total.added, total.refusals) == (2 * BATCH, [(5, "why")])
    assert seen == [BATCH - 1, 2 * BATCH - 1, 2 * BATCH]


def test_large_payloads_make_small_batches() -> None:
    store = Store()
    add([Line(n, n, size_bytes=BATCH_BYTES // 2) for n in range(5)], store.put)
    assert [len(batch) for batch in store.batches] == [2, 2, 1]


def test_where_the_store_fails_it_is_said_how_far_it_came() -> None:
    lines = [Line(n, n) for n in range(1, 2 * BATCH + 1)]
    with pytest.raises(Interrupted, match=f"the store is away; {BATCH} were added before, up to line {BATCH}$"):
        add(lines, Store(fails_at=1).put)


def test_nothing_is_nothing() -> None:
    assert add([], Store().put) == Total()
