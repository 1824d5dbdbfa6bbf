"""A SIGKILL, and a SIGSTOP for longer than the lease, at every named place; each with the same verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet import failpoint
from fleet.operate.journal import Start, read
from tests.chaos.test_storm import judge
from tests.member import Member
from tests.servers.local import stands_still
from tests.spark.driver import FEED
from tests.stage import Stage, a_stage
from tests.waiting import let_pass, until

COORDINATOR = (
    "polled", "tracked", "submitted", "settled-read", "acked-at-source", "untracked", "nacked-at-source",
    "owned", "fenced-pools",
)  # fmt: skip
WORKER = ("claimed", "posted", "requested", "answered", "settled", "copied")
DISTURBED = ("claim-lost", "settle-repeated")
NACKS = ("untracked", "nacked-at-source")
MESSAGES, GROUPS = 600, 30
"""Where messages are nacked each has a group of its own: a nacked sibling waits ten seconds, and so would the test."""


def test_every_failpoint_is_tried() -> None:
    assert set(COORDINATOR + WORKER + DISTURBED + FEED) == failpoint.NAMES


@pytest.mark.parametrize("action", ["kill", "stop"])
@pytest.mark.parametrize("name", COORDINATOR + WORKER)
def test_a_process_that_dies_or_sleeps_there_costs_nothing(tmp_path: Path, name: str, action: str) -> None:
    role = "coordinator" if name in COORDINATOR else "worker"
    # The third pass for steps of every batch: by then both sides are in full swing.
    nth = 1 if name in ("owned", "fenced-pools") else 3
    with a_stage(tmp_path, ttl_ms=1000, visibility_s=4, path="/busy" if name in NACKS else "/") as stage:
        victim = _begin(stage, role, f"{name}:{action}:{nth}", groups=MESSAGES if name in NACKS else GROUPS)
        _wait_until_hit(stage, victim, action)
        # Its fellow starts only now: the victim was sure to reach the place.
        stage.start(role)
        if action == "stop":
            let_pass(stage.ttl_ms * 2.5 / 1000)
            stage.resume(victim)
        stage.wait_drained(90)
        judge(stage)


def test_a_coordinator_that_sleeps_before_the_first_message_ever_for_a_pool_is_refused_there(tmp_path: Path) -> None:
    """Its successor fences no pool but those that something is tracked for."""
    with a_stage(tmp_path, ttl_ms=1000, visibility_s=4) as stage:
        victim = _begin(stage, "coordinator", "tracked:stop:1")
        _wait_until_hit(stage, victim, "stop")
        stage.start("coordinator")
        until(lambda: stage.started() > MESSAGES // 10, 30, stage.describe)
        stage.resume(victim)
        stage.wait_drained(90)
        judge(stage)
        assert "has another owner" in victim.text()


@pytest.mark.parametrize("name", ["claimed", "answered", "settled"])
def test_a_worker_whose_event_loop_hangs_there_loses_its_groups(tmp_path: Path, name: str) -> None:
    """Unlike after SIGSTOP its other threads go on: whatever they do, they may not keep its leases."""
    # A rate that makes nobody wait: one message a lease, so what it settles too late would end another's lease.
    # Slow answers: at any moment most groups are being delivered, so that this would show.
    with a_stage(tmp_path, ttl_ms=1000, visibility_s=20, rate=1_000_000) as stage:
        victim = _begin(stage, "worker", f"{name}:block:3", groups=5, latency_ms=40)
        until(lambda: victim.blocked_at_ms > 0, 60, stage.describe)
        stage.note_doubt(victim)
        stage.start("worker")
        stage.wait_lapsed(victim)
        went_on = stage.started() + MESSAGES // 10
        until(lambda: stage.started() >= went_on, 30, stage.describe)
        assert not stage.is_drained(), "nothing is left that it could disturb"
        stage.resume(victim)
        stage.wait_drained(90)
        judge(stage)


@pytest.mark.parametrize("nth", [GROUPS // 2, GROUPS * 5], ids=["first", "later"])
@pytest.mark.parametrize("action", ["stop", "block"])
def test_a_worker_that_wakes_sends_nothing_under_leases_that_lapsed(tmp_path: Path, action: str, nth: int) -> None:
    """Requests wait in libcurl when it falls asleep. Nobody else has the groups, so no endpoint would refuse them."""
    with a_stage(tmp_path, ttl_ms=1000, visibility_s=20) as stage:
        victim = _begin(stage, "worker", f"posted:{action}:{nth}")
        if action == "stop":
            _wait_until_hit(stage, victim, action)
        else:
            until(lambda: victim.blocked_at_ms > 0, 60, stage.describe)
            stage.note_doubt(victim)
        epochs = {int(epoch) for _, epoch in stage.leases_of(victim)}
        assert stage.started() < nth, "nothing waited in libcurl"
        stage.wait_lapsed(victim)
        started = stage.started()
        stage.resume(victim)
        stage.wait_drained(90)
        late = [r for r in read(stage.endpoint_journal) if isinstance(r, Start)][started:]
        assert late, "nothing was delivered afterwards"
        assert [record for record in late if record.epoch in epochs] == []
        judge(stage)


@pytest.mark.parametrize("name", DISTURBED)
def test_a_call_said_twice_or_not_heard_costs_nothing(tmp_path: Path, name: str) -> None:
    with a_stage(tmp_path, ttl_ms=1000, visibility_s=4) as stage:
        _begin(stage, "worker", f"{name}:drop:3")
        stage.wait_drained(90)
        judge(stage)


def test_a_worker_killed_with_rate_permits_gives_none_twice(tmp_path: Path) -> None:
    with a_stage(tmp_path, ttl_ms=1000, visibility_s=4, rate=40) as stage:
        victim = _begin(stage, "worker", "claimed:kill:1")
        _wait_until_hit(stage, victim, "kill")
        stage.start("worker")
        until(lambda: stage.started() > 0, 30, stage.describe)
        let_pass(5)
        # The permits of the killed one are spent; the minute holds no more than the rest.
        assert 0 < stage.started() < 40


def _begin(stage: Stage, role: str, spec: str, groups: int = GROUPS, latency_ms: int = 5) -> Member:
    stage.start_endpoint(latency_ms=latency_ms)
    stage.configure()
    stage.send_messages(MESSAGES, groups)
    if role == "worker":
        stage.start("coordinator")
        return stage.start("worker", failpoint=spec)
    stage.start("worker")
    return stage.start("coordinator", failpoint=spec)


def _wait_until_hit(stage: Stage, victim: Member, action: str) -> None:
    def hit() -> bool:
        if action == "kill":
            return not victim.alive
        return stands_still(Path(f"/proc/{victim.process.pid}"))

    until(hit, 60, stage.describe)
    stage.note_doubt(victim)
