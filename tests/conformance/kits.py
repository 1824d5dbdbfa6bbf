"""What the suite needs to know of a kind of queue. A new kind is a class here and a line in `KITS`."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Protocol

from fleet.sources.base import Publisher, Source
from fleet.sources.open import open_publisher, open_source


class Kit(Protocol):
    holds_groups: ClassVar[bool]
    short_ms: int
    """The shortest visibility timeout or delay that the queue can do; the suite really waits for it."""

    def source(self, visibility_ms: int) -> Source:
        """A source, not open yet, of the one queue of this test."""

    def publisher(self) -> Publisher: ...


class SqliteKit:
    holds_groups: ClassVar[bool] = True
    short_ms = 60

    def __init__(self, folder: Path) -> None:
        self._uri = f"sqlite:///{folder}/queue.db?queue=conformance"

    def source(self, visibility_ms: int) -> Source:
        return open_source("conformance", self._uri, visibility_ms)

    def publisher(self) -> Publisher:
        return open_publisher(self._uri)


KITS = {"sqlite": SqliteKit}
