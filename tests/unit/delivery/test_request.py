"""The one way a request leaves Fleet: what is asked before it is sent, and what is recorded of what came of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any, cast

import pytest

from fleet.delivery.breaker import ASK, PASS, PROBE, Admit, Ask, Open
from fleet.delivery.client import BadUrl, HttpClient, Transfer
from fleet.delivery.reply import Reply
from fleet.delivery.request import Requests, Ticket
from fleet.outcome import Failed, NotSent, Uncallable
from fleet.sign import Signer
from tests.clocks import HandClock
from tests.unit.delivery.endpoints import answering, endpoint, on_uvloop
from tests.unit.delivery.noted import NotedBreakers, NotedClient

URL, ORIGIN = "http://a.example:81/orders", "http://a.example:81"
OK, BROKEN = Reply(200, b"", 0.1), Reply(500, b"", 0.1)
ASLEEP_MS = 1000


class Scene:
    def __init__(self, *admits: Admit, client: Any = None) -> None:
        self.clock = HandClock()
        self.breakers = NotedBreakers(*admits)
        self.client = NotedClient() if client is None else client
        self.replies: list[Reply] = []
        self.drops = 0
        self.on_drop: Callable[[], None] = lambda: None
        self.requests = Requests(
            client=cast(Any, self.client),
            clock=self.clock,
            breakers=cast(Any, self.breakers),
            forbids_url=lambda url: "forbidden" in url,
            asleep_ms=ASLEEP_MS,
            drop_lapsed=self._drop_lapsed,
        )

    def _drop_lapsed(self) -> None:
        self.drops += 1
        self.on_drop()

    def _done(self, reply: Reply) -> None:
        self.breakers.notes.append("the caller hears")
        self.replies.append(reply)

    def ticket(self) -> Ticket:
        admitted = self.requests.admit(ORIGIN)
        assert isinstance(admitted, Ticket)
        self.breakers.notes.clear()
        return admitted

    def post(
        self, ticket: Ticket, *, url: str = URL, header: str = "X: y", signer: Signer | None = None
    ) -> Transfer | NotSent | Failed | Uncallable:
        return self.requests.post(
            ticket, url, [header], b"{}", message_id="m", signer=signer, timeout_ms=5000, done=self._done
        )


def test_what_egress_rules_forbid_is_not_posted_even_by_somebody_who_did_not_ask() -> None:
    scene = Scene(PROBE)
    sent = scene.post(scene.ticket(), url="http://forbidden.example/x")
    assert sent == NotSent("egress rules forbid http://forbidden.example", warn=True)
    assert scene.client.sent == []
    assert scene.breakers.notes == ["permit back"]


# Before --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        (URL, None),
        ("http://forbidden.example/x?token=1", NotSent("egress rules forbid http://forbidden.example", warn=True)),
    ],
)
def test_what_egress_rules_forbid_is_known_without_anybody_being_asked(url: str, expected: NotSent | None) -> None:
    scene = Scene()
    assert scene.requests.forbidden(url) == expected
    assert (scene.breakers.notes, scene.client.sent) == ([], [])


@pytest.mark.parametrize("admitted", [ASK, Open(5000.0), Open(100.0, probed=True)])
def test_a_breaker_that_says_no_or_ask_says_it_to_the_caller(admitted: Ask | Open) -> None:
    assert Scene(admitted).requests.admit(ORIGIN) is admitted


def test_what_will_hardly_be_sent_takes_no_permit() -> None:
    scene = Scene(PROBE)
    scene.requests.unasked(ORIGIN).close()
    assert scene.breakers.notes == []


def test_a_request_is_signed_with_the_time_it_leaves_at_and_only_where_there_is_a_signer() -> None:
    scene, signer = Scene(), Signer("secret")
    scene.post(scene.ticket())
    scene.post(scene.ticket(), signer=signer)
    plain, signed = (sent["headers"] for sent in scene.client.sent)
    assert plain == ["X: y"]
    assert signed == ["X: y", *signer.headers("m", scene.clock.now_ms // 1000, b"{}")]


# After ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "recorded"),
    [
        (OK, "well"),
        (Reply(404, b"", 0.1), "well"),
        (Reply(429, b"", 0.1), "well"),
        (BROKEN, "badly"),
        (Reply(0, b"", 0.1, error="TIMEOUT"), "badly"),
        (Reply(0, b"", 0.1, error="FORBIDDEN_ADDRESS"), ""),
        (Reply(0, b"", 0.1, error="BAD_URL"), ""),
    ],
    ids=lambda value: str(value.error or value.status) if isinstance(value, Reply) else value,
)
@pytest.mark.parametrize("admitted", [PASS, PROBE])
def test_what_came_of_it_is_recorded_before_the_caller_hears_and_a_permit_without_an_answer_is_given_back(
    admitted: Admit, reply: Reply, recorded: str
) -> None:
    scene = Scene(admitted)
    ticket = scene.ticket()
    scene.post(ticket)
    scene.client.answer(reply)
    noted = f"{'probe' if admitted is PROBE else 'request'} {recorded}" if recorded else "permit back"
    assert scene.breakers.notes == [*([noted] if recorded or admitted is PROBE else []), "the caller hears"]
    assert scene.replies == [reply]
    ticket.close()
    assert scene.breakers.notes[-1] == "the caller hears", "the permit is used up"


@pytest.mark.parametrize(("admitted", "notes"), [(PASS, []), (PROBE, ["permit back"])])
def test_a_ticket_that_nothing_went_out_on_gives_its_permit_back_once(admitted: Admit, notes: list[str]) -> None:
    scene = Scene(admitted)
    ticket = scene.ticket()
    for _ in range(3):
        ticket.close()
    assert scene.breakers.notes == notes


@pytest.mark.parametrize(
    "error", [RuntimeError("closed"), MemoryError("no room"), UnicodeEncodeError("a", "b", 0, 1, "c")], ids=repr
)
def test_an_error_that_nobody_foresaw_is_an_outcome_and_never_an_ack(error: Exception) -> None:
    scene = Scene(PROBE)
    scene.client.error = error
    outcome = scene.post(scene.ticket())
    assert isinstance(outcome, Failed)
    assert (outcome.unexpected, outcome.worth_another_attempt, outcome.retry_s) == (True, False, None)
    assert type(error).__name__ in outcome.reason
    assert (scene.breakers.notes, scene.replies) == (["permit back"], [])


def test_what_is_no_url_can_never_be_called() -> None:
    scene = Scene(PROBE)
    scene.client.error = BadUrl("too long")
    assert scene.post(scene.ticket()) == Uncallable("not a URL that can be called: too long")
    assert scene.breakers.notes == ["permit back"]


# A process that was stopped, or hung ----------------------------------------------------------------


def test_after_a_sleep_and_only_then_what_lapsed_is_dropped_once() -> None:
    scene, drops = Scene(), []
    for passed_ms in (0, ASLEEP_MS, ASLEEP_MS + 1, 1, 60_000, ASLEEP_MS):
        scene.clock.now_ms += passed_ms
        scene.client.before_io()
        drops.append(scene.drops)
    assert drops == [0, 0, 1, 1, 2, 2]


@on_uvloop
async def test_what_lapsed_in_a_sleep_is_dropped_before_any_of_it_is_written() -> None:
    async with endpoint(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")) as server:
        with closing(HttpClient(forbidden=lambda _: False)) as client:
            scene = Scene(client=client)
            lapsed = scene.post(scene.ticket(), url=server.url)
            assert isinstance(lapsed, Transfer)
            scene.on_drop = lapsed.abort
            scene.clock.now_ms += ASLEEP_MS + 1
            scene.post(scene.ticket(), url=server.url, header="X: last")
            await server.received(1)
            assert (scene.drops, len(server.requests)) == (1, 1)
            assert b"X: last" in server.requests[0]
