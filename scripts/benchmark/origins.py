"""Where the messages of a whole path come from: each kind of queue, with its server where it has one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from benchmark.house import QUEUE, House
from fleet.sources.base import Surroundings


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    uri: str
    around: Surroundings = field(default_factory=Surroundings)
    environment: Mapping[str, str] = field(default_factory=dict)
    """What Fleet's processes need to reach it."""
    pids: Mapping[str, int] = field(default_factory=dict)
    """Its server's, whose CPU counts too."""


@contextmanager
def embedded(home: House) -> Iterator[Origin]:
    yield Origin(uri=f"sqlite:///{home.folder / 'queue.db'}?queue={QUEUE}")


@contextmanager
def own(home: House) -> Iterator[Origin]:
    yield Origin(uri=f"fleet://{QUEUE}", around=Surroundings(redis_url=home.server.url))
