"""What is read of a request, and how an error is answered."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fleet.errors import FleetError, InvalidConfig, SourceFull, StateUnavailable
from fleet.server import answers
from fleet.server.answers import HANDLERS, MAX_BODY_BYTES, Json, flag, query_number, read_json
from tests.unit.server.asking import Answer, ask

RAISED: list[Exception] = []


async def echo(request: Request) -> Response:
    return Json(await read_json(request))


async def maybe(request: Request) -> Response:
    return Json({"body": await read_json(request, optional=True)})


async def asked(request: Request) -> Response:
    return Json([query_number(request, "limit", 7, most=9), flag(request, "all")])


async def fail(_: Request) -> Response:
    raise RAISED.pop()


def app() -> Starlette:
    routes = [
        Route("/echo", echo, methods=["POST"]),
        Route("/maybe", maybe, methods=["POST"]),
        Route("/asked", asked),
        Route("/fail", fail),
    ]
    return Starlette(routes=routes, exception_handlers=HANDLERS)


async def test_a_body_may_come_in_pieces() -> None:
    answer = await ask(app(), "POST", "/echo", body=[b'{"a"', b": [1", b"]}"])
    assert (answer.status, answer.document) == (200, {"a": [1]})
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("body", [b"", b"{", b'{"a":}', b"\xff", b"[" * 100_000])
async def test_a_body_that_is_no_json_is_refused_in_one_line(body: bytes) -> None:
    answer = await ask(app(), "POST", "/echo", body=body)
    assert answer.status == 400
    assert answer.document["error"].startswith("the body is not JSON: ")
    assert "\n" not in answer.document["error"]


async def test_a_body_may_be_missing_where_the_query_says_all() -> None:
    assert (await ask(app(), "POST", "/maybe")).document == {"body": None}


async def test_a_body_above_the_limit_is_not_read_to_its_end() -> None:
    exact = b'"' + b"x" * (MAX_BODY_BYTES - 2) + b'"'
    assert (await ask(app(), "POST", "/echo", body=exact)).status == 200
    chunks = [b" " * 65536] * 1000
    answer = await ask(app(), "POST", "/echo", body=chunks)
    assert (answer.status, answer.document) == (413, {"error": "the body is larger than 1048576 bytes"})


async def test_a_body_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "BODY_WITHIN_S", 0.01)
    answer = await ask(app(), "POST", "/echo", body=b"{", ends=False)
    assert (answer.status, answer.document) == (408, {"error": "the body did not end within 0.01 s"})


@pytest.mark.parametrize(
    ("query", "status"),
    [("", 200), ("limit=9", 200), ("limit=0", 400), ("limit=10", 400), ("limit=-1", 400), ("limit=1.5", 400),
     ("limit=x", 400), ("limit=", 400), ("all=true", 200), ("all=maybe", 400), ("limit=%D9%A3", 400)],
)  # fmt: skip
async def test_numbers_and_flags_of_a_query_are_checked(query: str, status: int) -> None:
    answer = await ask(app(), "GET", "/asked", query=query)
    assert answer.status == status
    assert status == 200 or list(answer.document) == ["error"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (StateUnavailable("Redis cannot be reached"), 503),
        (SourceFull("the disk is full"), 503),
        (InvalidConfig("no queue adapter"), 400),
        (FleetError("else"), 500),
    ],
)
async def test_an_error_of_ours_is_answered_in_its_own_words(error: Exception, status: int) -> None:
    RAISED.append(error)
    answer = await ask(app(), "GET", "/fail")
    assert (answer.status, answer.document) == (status, {"error": str(error)})


async def test_an_unforeseen_error_says_nothing_of_itself() -> None:
    RAISED.append(ValueError("the token is hidden"))
    answer = Answer()
    with pytest.raises(ValueError, match="hidden"):  # for the server's log
        await ask(app(), "GET", "/fail", into=answer)
    assert answer.status == 500
    assert "hidden" not in answer.body.decode()


async def test_unknown_addresses_and_methods_are_answered_as_json_too() -> None:
    assert (await ask(app(), "GET", "/nowhere")).document == {"error": "Not Found"}
    assert (await ask(app(), "GET", "/echo")).status == 405
