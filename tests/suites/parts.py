"""What of a suite is a process of its own. What is not named here is one together, so a new file needs no word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

TESTS = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Part:
    suite: str
    files: tuple[str, ...] = ()
    """None: all of the suite that no other part has."""
    about_s: int = 0
    """On two cores, with others beside it: the longest begin first."""
    cores: float = 0.5
    """How many it keeps busy; most of the tests wait for most of their time."""
    gives_way: bool = False
    """Its time is virtual: it takes what the others leave."""
    is_alone: bool = False
    """It judges how fast something is, so nothing runs beside it."""
    others: tuple[str, ...] = ()
    """Files of other parts."""

    @property
    def title(self) -> str:
        first = " ".join((self.suite, *self.files[:1]))
        return f"{first} and {len(self.files) - 1} more" if len(self.files) > 1 else first

    @property
    def arguments(self) -> list[str]:
        """Of pytest."""
        folder = f"tests/{self.suite}"
        if self.files:
            return [f"{folder}/{file}" for file in self.files]
        return [folder, *(f"--ignore={folder}/{file}" for file in self.others)]


_PARTS = (
    Part("unit", about_s=55),
    Part("state", about_s=70, cores=1.0),
    Part("simulation", about_s=140, cores=0.0, gives_way=True),
    Part("conformance", about_s=45),
    Part("conformance", ("test_whole_fleet.py",), about_s=470, cores=0.3),
    Part("integration", about_s=220, cores=0.4),
    Part(
        "integration",
        (
            "test_activemq.py",
            "test_activemq_nacks.py",
            "test_crash_wait.py",
            "test_nats.py",
            "test_nats_trouble.py",
            "test_publishers.py",
            "test_sqs.py",
            "test_sqs_fifo.py",
        ),
        about_s=90,
        cores=0.3,
    ),
    Part("acceptance", about_s=220),
    Part("acceptance", ("test_sqs_boto3.py", "test_sqs_celery.py", "test_sqs_node.py"), about_s=80, cores=0.7),
    Part("acceptance", ("test_bench.py",), about_s=110, cores=0.7),
    Part("acceptance", ("test_up.py",), about_s=100, cores=0.8),
    Part(
        "acceptance",
        (
            "test_slow_beside_fast.py",
            "test_seed_numbers.py",
            "test_seed_pools.py",
            "test_pools_together.py",
            "test_deep_groups.py",
        ),
        about_s=220,
        is_alone=True,
    ),
    Part("spark", about_s=320, cores=1.0),
    Part("spark", ("test_whole.py",), about_s=220, cores=1.0),
    Part("spark", ("test_submit.py",), about_s=150, cores=1.0),
    Part("chaos", about_s=300, cores=0.3),
    Part("chaos", ("test_failpoints.py",), about_s=170, cores=0.3),
)
"""A suite's first line is what the others leave of it."""


def whole(suites: Sequence[str]) -> list[Part]:
    """Each of them one process."""
    return [Part(suite) for suite in suites if _has_tests(suite)]


def parts_of(suites: Sequence[str]) -> list[Part]:
    """The longest first, and last of all those that run alone."""
    found = []
    for part in _PARTS:
        if part.suite in suites and _has_tests(part.suite):
            others = () if part.files else _files_of_parts(part.suite)
            found.append(replace(part, others=others))
    return sorted(found, key=lambda part: (part.is_alone, -part.about_s))


def _files_of_parts(suite: str) -> tuple[str, ...]:
    return tuple(file for part in _PARTS if part.suite == suite for file in part.files)


def _has_tests(suite: str) -> bool:
    """A suite of a later chapter that has none yet is not run; an empty run of one that has them is a failure."""
    return any((TESTS / suite).rglob("test_*.py"))
