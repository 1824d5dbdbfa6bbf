"""Fetching a configuration: what is read, what is refused, and which words say so."""

from __future__ import annotations

import gzip
import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from coordinator.syncer.fetch import MAX_CONFIG_BYTES, fetch
from fleet.errors import InvalidConfig

BODY = b'{"processingPools": []}'

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


@contextmanager
def endpoint(answer: Answer) -> Iterator[str]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}/config"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def answering(status: int, body: bytes, **headers: str) -> Answer:
    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return answer


def refusal(source: str, **more: Any) -> str:
    with pytest.raises(InvalidConfig) as caught:
        fetch(source, **more)
    return str(caught.value)


def test_a_url_and_a_file_give_their_bytes(tmp_path: Path) -> None:
    (tmp_path / "router.json").write_bytes(b"{}")
    assert fetch(str(tmp_path / "router.json")) == b"{}"
    with endpoint(answering(200, BODY)) as address:
        assert fetch(f"http://{address}") == BODY


def test_a_user_of_the_url_signs_in_and_appears_in_no_error() -> None:
    seen: list[str] = []

    def answer(handler: http.server.BaseHTTPRequestHandler) -> None:
        seen.append(handler.headers["Authorization"])
        answering(403, b"")(handler)

    with endpoint(answer) as address:
        text = refusal(f"http://me:s3cret@{address}?token=s3cret")
    assert seen == ["Basic bWU6czNjcmV0"]
    assert text == f"http://{address}: answered 403"


def test_a_proxy_of_the_environment_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with endpoint(answering(200, b"{}")) as address:
        assert fetch(f"http://{address}") == b"{}"


@pytest.mark.parametrize("encoded", [False, True])
def test_a_configuration_beyond_the_limit_is_refused(encoded: bool, tmp_path: Path) -> None:
    large = b" " * (MAX_CONFIG_BYTES + 1)
    answer = answering(200, gzip.compress(large), Content_Encoding="gzip") if encoded else answering(200, large)
    with endpoint(answer) as address:
        assert "is larger than" in refusal(f"http://{address}")
    (tmp_path / "large").write_bytes(large)
    assert "is larger than" in refusal(str(tmp_path / "large"))
    (tmp_path / "large").write_bytes(large[1:])
    assert len(fetch(str(tmp_path / "large"))) == MAX_CONFIG_BYTES


def test_an_endpoint_that_trickles_meets_one_deadline() -> None:
    ended = threading.Event()

    def trickle(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            for _ in range(250):
                handler.wfile.write(b" ")
                if ended.wait(0.02):
                    break
        except OSError:
            pass

    with endpoint(trickle) as address:
        try:
            assert "did not end within 0.3 s" in refusal(f"http://{address}", timeout_s=0.3)
        finally:
            ended.set()


def test_an_endpoint_that_is_silent_meets_the_deadline_too() -> None:
    ended = threading.Event()

    def say_nothing(handler: http.server.BaseHTTPRequestHandler) -> None:
        ended.wait(10)

    with endpoint(say_nothing) as address:
        try:
            assert "did not answer within 0.2 s" in refusal(f"http://{address}", timeout_s=0.2)
        finally:
            ended.set()


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("http://127.0.0.1:9/x", "http://127.0.0.1:9/x: cannot be reached"),
        ("gopher://h/x", "gopher://h/x: cannot be fetched"),
        ("http://", "http://: cannot be fetched"),
        ("/nowhere/router.json", "/nowhere/router.json: No such file"),
        ("/", "/: Is a directory"),
    ],
)
def test_what_cannot_be_fetched_is_named(source: str, words: str) -> None:
    assert refusal(source).startswith(words)
