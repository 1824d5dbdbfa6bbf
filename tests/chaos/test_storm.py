"""Processes are killed and stopped at random under load; the journal says what came of it."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.member import Member
from tests.stage import Stage, a_stage
from tests.waiting import let_pass, until

WORKERS, COORDINATORS, HANGING = 3, 2, 2
DRAIN_LIMIT_S = 240
BUSY_EVERY = 100
"""Few: a refused message comes back after a second, and so does the end of the test."""
NO_LIMIT = 1_000_000
"""A rate that never makes anybody wait. In a pool that has one a lease is for one message, so every outcome gives
a lease back: what is settled too late would give back somebody else's."""


@pytest.mark.parametrize(
    ("messages", "groups", "rate", "uri"),
    [
        pytest.param(6_000, 150, None, "", id="short"),
        pytest.param(4_000, 50, NO_LIMIT, "", id="one-a-lease"),
        pytest.param(4_000, 100, None, "fleet://storm", id="own-queue"),
        pytest.param(20_000, 500, None, "", id="whole", marks=pytest.mark.long),
        pytest.param(20_000, 500, None, "fleet://storm", id="own-queue-whole", marks=pytest.mark.long),
    ],
)
def test_nothing_is_lost_or_reordered_while_processes_die(
    tmp_path: Path, messages: int, groups: int, rate: int | None, uri: str
) -> None:
    dice = random.Random(20261118)
    with a_stage(tmp_path, rate=rate, source_uri=uri) as stage:
        storm(stage, dice, messages=messages, groups=groups)
        judge(stage)


def storm(stage: Stage, dice: random.Random, *, messages: int, groups: int) -> None:
    """Two workers hang and three are stopped for longer than a lease; ten workers and three coordinators are killed."""
    stage.start_endpoint(latency_ms=20)
    stage.configure()
    stage.send_messages(messages // 2, groups, busy_every=BUSY_EVERY)
    for _ in range(COORDINATORS):
        stage.start("coordinator")
    _hang(stage)
    stopped: list[tuple[float, Member]] = []
    disturbances = ["kill worker"] * 10 + ["kill coordinator"] * 3 + ["stop worker"] * 3
    dice.shuffle(disturbances)
    total = len(disturbances)
    for number, disturbance in enumerate(disturbances):
        _wait_for_progress(stage, (number + 1) * messages * 9 // (total * 10))
        if number == total // 2:
            stage.send_messages(messages - messages // 2, groups, busy_every=BUSY_EVERY)
        # Let those that were stopped go on once their leases have certainly lapsed.
        for due, member in list(stopped):
            if time.monotonic() >= due:
                stage.resume(member)
                stopped.remove((due, member))
        paused = [member for _, member in stopped]
        victims = stage.coordinators() if disturbance == "kill coordinator" else stage.workers()
        victims = [member for member in victims if member not in paused]
        victim = dice.choice(victims)
        if disturbance == "stop worker":
            stage.pause(victim)
            stopped.append((_longer_than_a_lease(stage), victim))
            stage.start("worker")
        else:
            stage.kill(victim)
            stage.start(victim.role)
    for due, member in stopped:
        let_pass(due - time.monotonic())
        stage.resume(member)
    stage.wait_drained(DRAIN_LIMIT_S)


def _hang(stage: Stage) -> None:
    """Start the workers, two of which hang until their leases have lapsed and others deliver what they had."""
    hanging = []
    # Before the others: who comes first leases whatever there is, and these have to get to their failpoint.
    for _ in range(HANGING):
        victim = stage.start("worker", failpoint="answered:block:50")
        until(lambda victim=victim: victim.blocked_at_ms > 0, 60, stage.describe)  # type: ignore[misc]
        stage.note_doubt(victim)
        stage.wait_lapsed(victim)
        hanging.append(victim)
    for _ in range(WORKERS):
        stage.start("worker")
    # At once: while all groups are being delivered it shows if one that is late ends somebody else's lease.
    _wait_for_progress(stage, _lines(stage.endpoint_journal) // 2 + stage.concurrency * 3)
    for victim in hanging:
        stage.resume(victim)


def _longer_than_a_lease(stage: Stage) -> float:
    return time.monotonic() + stage.ttl_ms * 2 / 1000


def _wait_for_progress(stage: Stage, delivered: int) -> None:
    """So that the disturbances spread over the run, however fast this machine is."""
    begun = stage.endpoint_journal
    until(lambda: begun.exists() and _lines(begun) // 2 >= min(delivered, stage.sent), 60, stage.describe, every_s=0.05)


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))


def judge(stage: Stage) -> None:
    verdict = stage.verdict()
    print(verdict.table())
    print(f"{stage.in_doubt} requests had started and were not settled at the kills, stops and hangs;")
    under_way = stage.answered
    print(f"answers were under way to {under_way['death']} of them at kills and stops, {under_way['hang']} at hangs")
    assert verdict.sent == verdict.accepted == stage.sent
    assert verdict.lost == 0, verdict.examples
    assert verdict.inversions == 0, verdict.examples
    assert verdict.overlaps == 0, verdict.examples
    assert verdict.overlaps_by_fenced == 0, verdict.examples
    assert stage.duplicates_without_doubt() == {}
    assert verdict.duplicates <= stage.in_doubt, (verdict.duplicates, stage.in_doubt, verdict.examples)
    assert stage.leftover_keys() == []
