"""The HTTP client: what it sends, what it takes in, and how it lets go."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fleet.delivery.client import BadUrl, HttpClient, Transfer
from fleet.delivery.reply import Reply
from tests.unit.delivery.endpoints import Endpoint, answering, answering_together, endpoint, never, on_uvloop, post

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n" + b'{"ack":true}'
EMPTY = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Judge:
    """Forbids nothing, and remembers what it was asked about."""

    def __init__(self) -> None:
        self.addresses: list[str] = []

    def __call__(self, address: str) -> bool:
        self.addresses.append(address)
        return False


@contextmanager
def http_client(**options: Any) -> Iterator[HttpClient]:
    client = HttpClient(**options)
    try:
        yield client
    finally:
        client.close()


async def silent(state: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Take a request and never answer."""
    await state.read_request(reader)
    if not await reader.read():
        state.gone.set()


@on_uvloop
async def test_a_reply_carries_status_and_body() -> None:
    async with endpoint(answering(OK)) as server:
        with http_client() as client:
            reply = await post(client, server.url)
            assert (reply.status, reply.body, reply.error) == (200, b'{"ack":true}', None)
            assert 0 < reply.seconds < 5
            assert client.in_flight == 0


@on_uvloop
async def test_a_request_is_sent_as_given_and_with_nothing_else() -> None:
    async with endpoint(answering(OK)) as server:
        with http_client() as client:
            await post(
                client, f"{server.url}/a/../b?c=1", headers=["Accept: application/json", "X: 1"], body=b'{"m":1}'
            )
        assert server.requests == [
            b"POST /hook/a/../b?c=1 HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nUser-Agent: fleet\r\nAccept: application/json\r\n"
            b'X: 1\r\nContent-Length: 7\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\n{"m":1}' % server.port
        ]


@on_uvloop
async def test_a_header_or_url_that_is_not_ascii_is_sent_as_utf8() -> None:
    async with endpoint(answering(OK)) as server:
        with http_client() as client:
            assert (await post(client, f"{server.url}/é", headers=["Fleet-Group: ü"])).status == 200
    assert b"/hook/%C3%A9 " in server.requests[0] and "Fleet-Group: ü\r\n".encode() in server.requests[0]


@on_uvloop
async def test_what_libcurl_takes_for_no_url_at_once_is_told_apart_from_other_errors() -> None:
    async with endpoint(answering(OK)) as server:
        with http_client() as client:
            with pytest.raises(BadUrl):
                await post(client, "http://" + "a" * 9_000_000)
            with pytest.raises(UnicodeEncodeError):
                await post(client, f"{server.url}/\ud800")
            for bad in ("http://", "http://[::1", "http://host:99999/"):
                assert (await post(client, bad)).error == "BAD_URL"
            # The handle is as good as new.
            assert (await post(client, server.url)).status == 200
            assert client.in_flight == 0


@on_uvloop
async def test_a_reused_handle_sends_nothing_of_the_request_before() -> None:
    async with endpoint(answering(OK)) as server:
        with http_client() as client:
            await post(client, server.url, headers=["First: 1"], body=b"first")
            await post(client, server.url + "/2", headers=["Second: 2"], body=b"2")
    assert b"First" not in server.requests[1] and server.requests[1].startswith(b"POST /hook/2 ")
    assert server.requests[1].endswith(b"\r\n\r\n2")


@on_uvloop
async def test_a_large_body_is_sent_without_asking_first() -> None:
    async with endpoint(answering(OK)) as server:
        with http_client() as client:
            assert (await post(client, server.url, body=b"x" * 2_000_000)).status == 200
    assert b"Expect" not in server.requests[0] and server.requests[0].endswith(b"x" * 1000)


@on_uvloop
async def test_a_connection_is_kept_and_its_address_judged_once() -> None:
    judged = Judge()
    async with endpoint(answering(OK)) as server:
        with http_client(forbidden=judged) as client:
            for _ in range(5):
                assert (await post(client, server.url)).status == 200
        assert server.connections == 1
    assert judged.addresses == ["127.0.0.1"]


@on_uvloop
async def test_as_many_connections_are_kept_as_requests_are_in_flight() -> None:
    async with endpoint(answering(OK)) as server:
        with http_client() as client:
            for _ in range(3):
                replies = await asyncio.gather(*(post(client, server.url) for _ in range(100)))
                assert {reply.status for reply in replies} == {200}
        assert server.connections == 100


@on_uvloop
async def test_a_kept_connection_that_the_endpoint_closed_is_replaced() -> None:
    async def once(state: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await state.read_request(reader)
        writer.write(OK)

    async with endpoint(once) as server:
        with http_client() as client:
            for _ in range(5):
                assert (await post(client, server.url)).status == 200
        assert server.connections == 5


@on_uvloop
async def test_the_address_is_judged_in_the_form_that_is_connected_to() -> None:
    judged = Judge()
    async with endpoint(answering(OK)) as server:
        with http_client(forbidden=judged) as client:
            for host in ("0x7f.1", "2130706433", "127.1"):
                await post(client, f"http://{host}:{server.port}/")
                server.connections = 0
    assert set(judged.addresses) == {"127.0.0.1"}


@on_uvloop
async def test_a_forbidden_address_is_not_called() -> None:
    async with endpoint(answering(OK)) as server:
        with http_client(forbidden=lambda address: address == "127.0.0.1") as client:
            reply = await post(client, server.url)
            assert (reply.status, reply.error) == (0, "FORBIDDEN_ADDRESS")
            assert "127.0.0.1" in reply.detail
        assert server.connections == 0


@pytest.mark.parametrize(
    "host", ["169.254.169.254", "0xa9fea9fe", "[fe80::1]", "[fd00:ec2::254]", "[::ffff:a9fe:a9fe]"]
)
@on_uvloop
async def test_a_metadata_address_is_not_called(host: str) -> None:
    with http_client() as client:
        assert (await post(client, f"http://{host}/latest/meta-data/")).error == "FORBIDDEN_ADDRESS"


@on_uvloop
async def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    async with endpoint(answering(OK)) as server, endpoint(answering(EMPTY)) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        with http_client() as client:
            assert (await post(client, server.url)).body == b'{"ack":true}'
        assert proxy.connections == 0


@pytest.mark.parametrize(("version", "offered"), [("HTTP_2", True), ("HTTP_1_1", False)])
@on_uvloop
async def test_http2_is_offered_over_tls_unless_configured_otherwise(version: str, offered: bool) -> None:
    hello: list[bytes] = []

    async def take_hello(_: Endpoint, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        hello.append(await reader.read(4096))

    async with endpoint(take_hello) as server:
        with http_client(http_version=version) as client:
            reply = await post(client, server.url.replace("http:", "https:"))
            assert (reply.status, reply.error) == (0, "PROTOCOL")
    assert (b"\x02h2" in hello[0]) is offered and b"\x08http/1.1" in hello[0]


@pytest.mark.parametrize("scheme", ["file", "ftp", "gopher", "dict"])
@on_uvloop
async def test_only_http_and_https_are_spoken(scheme: str) -> None:
    with http_client() as client:
        assert (await post(client, f"{scheme}://127.0.0.1/etc/passwd")).error == "PROTOCOL"


@on_uvloop
async def test_an_aborted_transfer_is_never_answered_and_its_connection_ends() -> None:
    async with endpoint(silent) as server:
        with http_client() as client:
            transfer = client.post(server.url, [], b"{}", timeout_ms=5000, done=never)
            await server.received(1)
            transfer.abort()
            assert client.in_flight == 0
            await server.gone.wait()
            transfer.abort()


@on_uvloop
async def test_aborting_an_ended_transfer_leaves_the_next_one_alone() -> None:
    async with endpoint(answering(OK)) as server:
        with http_client() as client:
            first: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            ended = client.post(server.url, [], b"{}", timeout_ms=5000, done=first.set_result)
            await first
            second: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            client.post(server.url, [], b"{}", timeout_ms=5000, done=second.set_result)
            ended.abort()
            assert client.in_flight == 1
            assert (await second).status == 200


@on_uvloop
async def test_a_callback_may_abort_the_others_and_post_in_their_place() -> None:
    async with endpoint(answering_together(OK, 20)) as server:
        with http_client() as client:
            called: list[int] = []
            reported: list[dict[str, Any]] = []
            asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
            again: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            transfers: list[Transfer] = []

            def done(reply: Reply) -> None:
                called.append(reply.status)
                if len(called) == 1:
                    return  # the first comes alone, the second with all the others in one turn
                for other in transfers:
                    other.abort()
                client.post(server.url, [], b"again", timeout_ms=5000, done=again.set_result)

            transfers.extend(client.post(server.url, [], b"{}", timeout_ms=5000, done=done) for _ in range(20))
            assert (await again).status == 200
            assert len(called) == 2 and client.in_flight == 0
            assert not reported


@on_uvloop
async def test_a_callback_may_close_the_client() -> None:
    async with endpoint(answering(OK)) as server:
        client = HttpClient()
        closed = asyncio.Event()

        def done(_: Reply) -> None:
            client.close()
            closed.set()

        client.post(server.url, [], b"{}", timeout_ms=5000, done=done)
        await closed.wait()
        with pytest.raises(RuntimeError):
            client.post(server.url, [], b"{}", timeout_ms=5000, done=done)


@on_uvloop
async def test_a_callback_that_raises_is_reported_and_keeps_no_reply_from_the_others() -> None:
    async with endpoint(answering_together(OK, 20)) as server:
        with http_client() as client:
            reported: list[dict[str, Any]] = []
            all_reported = asyncio.Event()

            def report(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
                reported.append(context)
                if len(reported) == 10:
                    all_reported.set()

            asyncio.get_running_loop().set_exception_handler(report)

            def bad(_: Reply) -> None:
                raise LookupError("bug")

            for _ in range(10):
                client.post(server.url, [], b"{}", timeout_ms=5000, done=bad)
            replies = await asyncio.gather(*(post(client, server.url) for _ in range(10)))
            assert {reply.status for reply in replies} == {200}
            await all_reported.wait()
            assert [type(context["exception"]) for context in reported] == [LookupError] * 10


@on_uvloop
async def test_close_aborts_what_is_in_flight() -> None:
    async with endpoint(silent) as server:
        client = HttpClient()
        for _ in range(10):
            client.post(server.url, [], b"{}", timeout_ms=5000, done=never)
        await server.received(10)
        assert client.in_flight == 10
        client.close()
        assert client.in_flight == 0
        await server.gone.wait()


@on_uvloop
async def test_a_request_without_a_deadline_is_refused() -> None:
    with http_client() as client, pytest.raises(ValueError, match="deadline"):
        client.post("http://127.0.0.1:9/", [], b"", timeout_ms=0, done=never)


@on_uvloop
async def test_a_handle_survives_a_request_that_cannot_be_made() -> None:
    async with endpoint(answering(OK)) as server:
        with http_client() as client:
            with pytest.raises((TypeError, ValueError)):
                client.post(server.url, [1], b"{}", timeout_ms=5000, done=never)  # type: ignore[list-item]
            assert client.in_flight == 0
            assert (await post(client, server.url)).status == 200


@on_uvloop
async def test_a_reused_handle_takes_the_deadline_of_its_new_request() -> None:
    async with endpoint(answering(OK)) as server, endpoint(silent) as slow:
        with http_client() as client:
            assert (await post(client, server.url, timeout_ms=9000)).status == 200
            reply = await post(client, slow.url, timeout_ms=100)
            assert (reply.error, reply.seconds < 3) == ("TIMEOUT", True)


@on_uvloop
async def test_a_nearer_deadline_is_kept_although_a_later_one_was_set_before() -> None:
    async with endpoint(silent) as server:
        with http_client() as client:
            client.post(server.url, [], b"{}", timeout_ms=9000, done=never)
            await server.received(1)
            assert (await post(client, server.url, timeout_ms=100)).seconds < 3


@on_uvloop
async def test_certificates_are_checked_against_those_of_the_system_or_the_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    certificate = str(Path(__file__).parent / "localhost.pem")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate)
    async with endpoint(answering(OK), tls=tls) as server:
        url = f"https://127.0.0.1:{server.port}/"
        with http_client() as client:
            reply = await post(client, url)
            assert (reply.status, reply.error) == (0, "PROTOCOL") and "self-signed" in reply.detail
        with http_client(ca_file=certificate) as client:
            assert (await post(client, url)).status == 200
            assert (await post(client, url.replace("127.0.0.1", "127.0.0.2"))).error in ("REFUSED", "PROTOCOL")
        monkeypatch.setenv("SSL_CERT_FILE", certificate)
        with http_client() as client:
            assert (await post(client, url)).status == 200
