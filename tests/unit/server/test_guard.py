"""Who gets through, and who does not."""

from __future__ import annotations

import asyncio
import base64

import pytest
from starlette.types import Receive, Scope, Send

from fleet.config.settings import ServerSettings
from fleet.errors import InvalidConfig
from fleet.listening import is_loopback
from fleet.server import processing_endpoint
from fleet.server.answers import Json
from fleet.server.door import Tokens
from fleet.server.guard import AT_ONCE, Guard
from tests.unit.server.asking import Answer, ask

OPERATOR, VIEWER = "operator's", "viewer's ünïcode"
BOTH = Tokens(OPERATOR, VIEWER)


async def through(scope: Scope, receive: Receive, send: Send) -> None:
    await Json({"path": scope["path"]})(scope, receive, send)


async def asked(
    tokens: Tokens, method: str = "GET", path: str = "/warnings", host: str = "127.0.0.1:8420", **headers: str
) -> Answer:
    return await ask(Guard(through, tokens=tokens), method, path, host=host, headers=headers)


@pytest.mark.parametrize(
    ("method", "token", "status"),
    [
        ("GET", OPERATOR, 200),
        ("POST", OPERATOR, 200),
        ("PUT", OPERATOR, 200),
        ("GET", VIEWER, 200),
        ("HEAD", VIEWER, 200),
        ("POST", VIEWER, 403),
        ("PUT", VIEWER, 403),
        ("DELETE", VIEWER, 403),
        ("GET", "wrong", 401),
        ("POST", "wrong", 401),
        ("GET", "", 401),
        ("GET", OPERATOR[:-1], 401),
    ],
)
async def test_a_viewer_reads_and_an_operator_writes_too(method: str, token: str, status: int) -> None:
    answer = await asked(BOTH, method, authorization=f"Bearer {token}")
    assert answer.status == status
    if status != 200:
        assert list(answer.document) == ["error"]
        assert token == "" or token not in answer.body.decode()


async def test_no_token_at_all_is_asked_for_one_in_a_way_that_browsers_know() -> None:
    answer = await asked(BOTH)
    assert answer.status == 401
    assert 'Basic realm="fleet"' in answer.headers["www-authenticate"]


@pytest.mark.parametrize("garbage", ["Bearer", "Basic", "Basic %%%", "Basic aGVsbG8=", "Basic /w==", "Digest x", " "])
async def test_a_header_that_is_no_credential_is_none(garbage: str) -> None:
    assert (await asked(BOTH, authorization=garbage)).status == 401


async def test_the_password_of_basic_is_the_token_whoever_the_user_is() -> None:
    word = base64.b64encode(f"anybody:{VIEWER}".encode()).decode()
    assert (await asked(BOTH, authorization=f"Basic {word}")).status == 200


@pytest.mark.parametrize("tokens", [Tokens(OPERATOR, ""), Tokens("", VIEWER), BOTH])
async def test_an_empty_token_is_nobodys(tokens: Tokens) -> None:
    assert (await asked(tokens, authorization="Bearer ")).status == 401


@pytest.mark.parametrize("path", ["/health", "/health/live", "/health/ready", "/health/startup"])
async def test_probes_need_no_token_and_no_name(path: str) -> None:
    assert (await asked(BOTH, path=path)).status == 200
    assert (await asked(Tokens(), path=path, host="10.0.0.5:8420")).status == 200


@pytest.mark.parametrize("path", ["/healthy", "/monitoring/health", "/metrics", "/", "/health2/../warnings"])
async def test_what_only_looks_like_a_probe_needs_one(path: str) -> None:
    assert (await asked(BOTH, path=path)).status == 401


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8420", 200),
        ("localhost:8420", 200),
        ("LOCALHOST", 200),
        ("[::1]:8420", 200),
        ("127.1.2.3", 200),
        ("evil.example:8420", 403),
        ("10.0.0.5", 403),
        ("", 403),
        ("[::1", 403),
    ],
)
async def test_without_tokens_only_names_of_loopback_are_answered(host: str, status: int) -> None:
    assert (await asked(Tokens(), host=host)).status == status


@pytest.mark.parametrize("tokens", [Tokens(), BOTH])
async def test_a_page_of_another_origin_changes_nothing(tokens: Tokens) -> None:
    token = f"Bearer {OPERATOR}"
    for origin, status in (("http://evil.example", 403), ("null", 403), ("http://127.0.0.1:8420", 200)):
        answer = await asked(tokens, "POST", authorization=token, origin=origin)
        assert answer.status == status


@pytest.mark.parametrize("tokens", [Tokens(), BOTH])
async def test_the_processing_endpoint_asks_for_no_role_and_no_name_but_refuses_other_peoples_pages(
    tokens: Tokens,
) -> None:
    for authorization in ("", "Bearer of-a-job", f"Bearer {VIEWER}"):
        answer = await asked(
            tokens,
            "POST",
            processing_endpoint.PATH,
            host="10.0.0.5:8420",
            authorization=authorization.encode().decode("latin-1"),
        )
        assert answer.status == 200
    assert (await asked(tokens, "POST", processing_endpoint.PATH, origin="http://evil.example")).status == 403


async def test_slow_targets_take_no_seats_of_those_who_look() -> None:
    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == processing_endpoint.PATH:
            await asyncio.Event().wait()
        await through(scope, receive, send)

    guard = Guard(slow, tokens=Tokens())
    busy = [asyncio.create_task(ask(guard, "POST", processing_endpoint.PATH)) for _ in range(2 * AT_ONCE)]
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        assert (await ask(guard, "GET", "/warnings")).status == 200
    for task in busy:
        task.cancel()
    await asyncio.gather(*busy, return_exceptions=True)


async def test_no_more_requests_are_worked_on_than_redis_has_connections_for() -> None:
    working = most = 0
    go_on, all_seats_taken = asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal working, most
        working += 1
        most = max(most, working)
        if working == AT_ONCE:
            all_seats_taken.set()
        if scope["path"] == "/warnings":
            await go_on.wait()
        working -= 1
        await through(scope, receive, send)

    guard = Guard(slow, tokens=Tokens())
    asked = [asyncio.ensure_future(ask(guard, "GET", "/warnings")) for _ in range(3 * AT_ONCE)]
    await all_seats_taken.wait()
    # Probes and streams do not wait for them.
    assert (await ask(guard, "GET", "/health/ready")).status == 200
    assert (await ask(guard, "GET", "/events")).status == 200
    go_on.set()
    assert {answer.status for answer in await asyncio.gather(*asked)} == {200}
    assert most == AT_ONCE + 1


async def test_answers_are_not_kept_and_not_shown_in_frames() -> None:
    headers = (await asked(Tokens())).headers
    assert (headers["cache-control"], headers["x-frame-options"]) == ("no-store", "DENY")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.5", "fleet.example", ""])
def test_another_address_than_loopback_needs_a_token(host: str) -> None:
    with pytest.raises(InvalidConfig, match="FLEET_SERVER_TOKEN"):
        Tokens.of(ServerSettings(viewer_token="only to read"), host)
    assert Tokens.of(ServerSettings(token="t"), host).any


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_loopback_needs_none(host: str) -> None:
    assert is_loopback(host)
    assert not Tokens.of(ServerSettings(), host).any


def test_tokens_are_not_printed() -> None:
    assert "operator" not in repr(BOTH).replace("Tokens(operator", "").replace("operator=", "")
    assert OPERATOR not in repr(BOTH)
