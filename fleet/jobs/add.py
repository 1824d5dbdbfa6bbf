"""A file of jobs or events into the store: in batches, in its order, each line taken or refused by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from fleet.errors import JobStoreError
from fleet.jobs.read import Line
from fleet.jobs.records import Added

T = TypeVar("T")

BATCH = 1000
BATCH_BYTES = 8 * 1024 * 1024


@dataclass(slots=True)
class Total:
    added: int = 0
    known: int = 0
    """There already, by their id or their idempotency key."""
    refusals: list[tuple[int, str]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)


class Interrupted(JobStoreError):
    """The store failed half-way."""


def add(
    lines: Iterable[Line[T]],
    put: Callable[[Sequence[T]], Added],
    *,
    on_progress: Callable[[Total], None] | None = None,
) -> Total:
    """`put` is `add_jobs` or `add_events`. If it fails, what was added before stays: the error says how much."""
    total = Total()
    for batch in _batches(lines):
        total.refusals += [(line.number, line.refusal) for line in batch if line.content is None]
        good = [line.content for line in batch if line.content is not None]
        try:
            done = put(good)
        except JobStoreError as error:
            raise Interrupted(f"{error}; {total.added} were added before, up to line {batch[0].number - 1}") from error
        total.added += len(done.ids)
        total.known += done.known
        total.ids += done.ids
        if on_progress is not None:
            on_progress(total)
    return total


def _batches(lines: Iterable[Line[T]]) -> Iterator[list[Line[T]]]:
    batch: list[Line[T]] = []
    size_bytes = 0
    for line in lines:
        batch.append(line)
        size_bytes += line.size_bytes
        if len(batch) == BATCH or size_bytes >= BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch
