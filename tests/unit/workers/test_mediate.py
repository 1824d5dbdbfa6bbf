"""What becomes of a message for which no request can be made: never an ack without a letter."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from fleet.delivery.breaker import Pass
from fleet.delivery.client import BadUrl
from fleet.delivery.request import Requests
from fleet.outcome import Failed, Outcome, Rejected, Uncallable
from fleet.state.entry import Entry
from fleet.state.pool import Claim, Policy, Settlement
from workers.account import name_of
from workers.lease import LaneLease
from workers.mediate import Mediator
from workers.settle import settle


class Link:
    """A pool's link, as far as a lease and a settle see it."""

    stopping = paused = False
    pool = SimpleNamespace(code="P")

    def __init__(self, policy: str = "return") -> None:
        self.policy = Policy(policy, 10)
        self.leases: dict[str, LaneLease] = {}
        self.settled: list[Settlement] = []

    def is_stalled(self, now_ms: float) -> bool:
        return False

    def release(self, lease: LaneLease, how: str = "ready") -> Settlement:
        self.settled.append(Settlement(lease.lane, lease.epoch, release=how))
        return self.settled[-1]

    def owe(self, lease: LaneLease) -> Settlement:
        return self.release(lease, "keep")


def lease_of(link: Link, messages: int = 1) -> LaneLease:
    entries = [
        Entry("q", f"b{i}", "1", "batch", "g", "g", 0, f"m{i}", "http://[", "token", True) for i in range(messages)
    ]
    lease = LaneLease(cast(Any, link), Claim("g", "7", entries), 1e12)
    link.leases["g"] = lease
    return lease


class Raising:
    def __init__(self, error: Exception) -> None:
        self.error = error

    def post(self, *_: Any, **__: Any) -> None:
        raise self.error


def outcome_of(error: Exception, link: Link) -> Outcome:
    requests = Requests(
        client=cast(Any, Raising(error)),
        clock=cast(Any, SimpleNamespace(boot_ms=lambda: 0.0, wall_ms=lambda: 0)),
        breakers=cast(Any, SimpleNamespace(admit=lambda *_: Pass())),
        forbids_url=lambda _: False,
        asleep_ms=1000,
        drop_lapsed=lambda: None,
    )
    signatures = cast(Any, SimpleNamespace(of=lambda _: None))
    mediator = Mediator(requests=requests, signatures=signatures, timeout_ms=1000)
    outcome = mediator.send(lease_of(link), 0.0, again=lambda _: None, answered=lambda *_: None)
    assert outcome is not None
    return outcome


@pytest.mark.parametrize(
    "error", [RuntimeError("closed"), MemoryError("no room"), UnicodeEncodeError("a", "b", 0, 1, "c")]
)
@pytest.mark.parametrize("policy", ["return", "skip", "hold", "park"])
def test_an_error_that_nobody_foresaw_is_never_an_ack(error: Exception, policy: str) -> None:
    link = Link(policy)
    outcome = outcome_of(error, link)
    assert isinstance(outcome, Failed) and outcome.unexpected and type(error).__name__ in outcome.reason
    assert name_of(outcome) == "ERROR_PROCESS"
    settle(lease_of(link), outcome)
    (settlement,) = link.settled
    verdicts = [item.rsplit("\x1f", 1)[1] for item in settlement.items]
    assert verdicts == ([] if policy in ("hold", "park") else ["n30000"])


@pytest.mark.parametrize("policy", ["return", "skip", "hold", "park"])
def test_what_is_no_url_is_kept_as_a_dead_letter_before_its_group_goes_on(policy: str) -> None:
    link = Link(policy)
    outcome = outcome_of(BadUrl("too long"), link)
    assert isinstance(outcome, Uncallable) and name_of(outcome) == "ERROR_CONFIG"
    lease = lease_of(link, messages=2)
    assert not settle(lease, outcome), "the next of the group waits until Redis knows"
    assert link.settled[0].release == "ready"
    (item,) = link.settled[0].items
    key, _, verdict = item.rpartition("\x1fp")
    assert key == "q\x1fb0\x1f1"
    letter = msgspec.json.decode(verdict)
    assert (letter["messageId"], letter["reason"]) == ("m0", "no URL that could be called: too long")


def test_what_is_rejected_is_known_to_redis_before_its_group_goes_on() -> None:
    link = Link("return")
    assert not settle(lease_of(link, messages=2), Rejected(404, "no")), "its worker may die"
    assert (link.settled[0].release, link.settled[0].items) == ("ready", ["q\x1fb0\x1f1\x1fa"])
