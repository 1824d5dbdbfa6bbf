"""One attempt: who signs it, whether its endpoint may be asked now, and the request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from fleet.delivery.breaker import ASK, Ask, Open
from fleet.delivery.client import Transfer
from fleet.delivery.request import Ticket
from fleet.delivery.signatures import Unsignable
from fleet.outcome import Failed, NotSent, Outcome, Uncallable
from fleet.sign import Signer
from tests.unit.workers.links import Link, lease_on
from workers.lease import LaneLease
from workers.mediate import PROBE_PATIENCE_MS, Mediator

URL, ORIGIN = "http://a.example:81/orders", "http://a.example:81"
TIMEOUT_MS = 5_000
TICKET = cast(Ticket, SimpleNamespace(close=lambda: None))
TRANSFER = cast(Transfer, SimpleNamespace(abort=lambda: None))
FORBIDDEN = NotSent("forbidden", warn=True)
JSON = ["Content-Type: application/json", "Accept: application/json"]


class Scene:
    """Stands in for the requests and the signatures, and notes what was asked of them, in turn."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.sent: dict[str, Any] = {}
        self.resumed: list[LaneLease] = []
        self.forbids: NotSent | None = None
        self.signer: Signer | Unsignable | None = Signer("secret")
        self.admitted: Ticket | Ask | Open = TICKET
        self.posts: Transfer | Outcome = TRANSFER
        self.mediator = Mediator(
            requests=cast(Any, self), signatures=cast(Any, SimpleNamespace(of=self._of)), timeout_ms=TIMEOUT_MS
        )

    def forbidden(self, url: str) -> NotSent | None:
        assert url == URL
        self.asked.append("egress")
        return self.forbids

    def _of(self, code: str) -> Signer | Unsignable | None:
        assert code == "P"
        self.asked.append("signer")
        return self.signer

    def admit(self, origin: str) -> Ticket | Ask | Open:
        assert origin == ORIGIN
        self.asked.append("breaker")
        return self.admitted

    def ask(self, origin: str, decided: Callable[[], object]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(0.5, decided)

    def post(self, ticket: Ticket, url: str, headers: list[str], body: bytes, **more: Any) -> Transfer | Outcome:
        assert (ticket, url) == (TICKET, URL)
        self.asked.append("post")
        self.sent = {"headers": headers, "body": body, **more}
        return self.posts

    def send(self, lease: LaneLease, now_ms: float = 1000.0) -> Outcome | None:
        return self.mediator.send(lease, now_ms, again=self.resumed.append, answered=lambda *_: None)


@pytest.mark.parametrize(
    ("what", "asked", "outcome"),
    [
        ({"forbids": FORBIDDEN}, ["egress"], FORBIDDEN),
        ({"signer": Unsignable("no secret")}, ["egress", "signer"], NotSent("no secret")),
        (
            {"admitted": Open(5000.0)},
            ["egress", "signer", "breaker"],
            NotSent(f"circuit breaker of {ORIGIN} is open"),
        ),
    ],
)
async def test_what_is_known_at_once_asks_for_no_more_and_spends_no_attempt(
    what: dict[str, Any], asked: list[str], outcome: Outcome
) -> None:
    scene, lease = Scene(), lease_on(Link(), target=URL)
    vars(scene).update(what)
    assert scene.send(lease) == outcome
    assert (scene.asked, lease.attempt, lease.ticket, lease.retry) == (asked, 0, None, None)


async def test_a_message_is_held_while_its_worker_asks_for_the_permit_to_probe() -> None:
    scene, lease = Scene(), lease_on(Link(), target=URL)
    scene.admitted = ASK
    assert scene.send(lease) is None
    assert (lease.attempt, lease.retry is None) == (0, False)
    await asyncio.sleep(1)
    assert scene.resumed == [lease]


async def test_a_message_waits_for_the_probe_of_another_one_but_not_for_long() -> None:
    scene, lease = Scene(), lease_on(Link(), target=URL)
    scene.admitted = Open(100.0, probed=True)
    assert scene.send(lease, 1000.0) is None
    await asyncio.sleep(0.09)
    assert scene.resumed == []
    await asyncio.sleep(0.02)
    assert scene.resumed == [lease]
    assert scene.send(lease, 1000.0 + PROBE_PATIENCE_MS) == NotSent(f"circuit breaker of {ORIGIN} is open")
    assert lease.attempt == 0


async def test_an_attempt_is_counted_and_the_lease_knows_what_it_goes_out_on() -> None:
    scene, lease = Scene(), lease_on(Link(), target=URL)
    assert scene.send(lease, 1000.0) is None
    assert scene.asked == ["egress", "signer", "breaker", "post"]
    assert (lease.attempt, lease.began_ms, lease.ticket, lease.transfer) == (1, 1000.0, TICKET, TRANSFER)
    assert scene.sent["body"] == b'{"messageId":"mg0"}'
    assert [scene.sent[key] for key in ("message_id", "signer", "timeout_ms")] == ["mg0", scene.signer, TIMEOUT_MS]
    scene.send(lease)
    assert "Fleet-Attempt: 2" in scene.sent["headers"]


@pytest.mark.parametrize(
    ("fields", "more"),
    [
        ({}, ["Fleet-Group: g"]),
        ({"group": "of many lanes"}, []),
        ({"auth_token": "t0k"}, ["Fleet-Group: g", "Authorization: Bearer t0k"]),
    ],
    ids=["in-order", "immediate", "with-a-token"],
)
def test_the_headers_name_the_message_and_the_lease_and_the_group_only_where_that_is_what_is_leased(
    fields: dict[str, Any], more: list[str]
) -> None:
    scene = Scene()
    scene.send(lease_on(Link(), target=URL, **fields))
    own = ["Idempotency-Key: mg0", "Fleet-Pool: P", "Fleet-Epoch: 7", "Fleet-Attempt: 1"]
    assert scene.sent["headers"] == [*JSON, *own, *more]


@pytest.mark.parametrize("outcome", [Uncallable("no URL"), Failed("it cannot be made", unexpected=True)])
def test_where_no_request_can_be_made_that_is_the_outcome(outcome: Outcome) -> None:
    scene, lease = Scene(), lease_on(Link(), target=URL)
    scene.posts = outcome
    assert scene.send(lease) == outcome
    assert lease.transfer is None


def test_the_message_id_is_written_as_json() -> None:
    scene = Scene()
    scene.send(lease_on(Link(), target=URL, message_id='a"b\\'))
    assert scene.sent["body"] == rb'{"messageId":"a\"b\\"}'
