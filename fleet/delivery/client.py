"""HTTP requests on the running event loop, through libcurl's multi interface.

The hot path of a worker, so it is built around what a request costs: easy handles are reused, with all that
never changes set once; a reply comes by callback, not by a future; reply headers are gathered as they are
and only read where the status or an encoding makes them matter.

libcurl's sockets live in an epoll of ours, and the event loop watches that one descriptor. libcurl takes a
socket in and out with every request, which costs a lot with the loop's own `add_reader`: 38,000 requests/s
that way, 57,000 this way (64 in flight, loopback nginx on the same two cores).
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import ssl
from collections.abc import Callable
from time import perf_counter
from typing import Any, Literal

import certifi
import pycurl

from fleet.delivery.curl_errors import error_kind
from fleet.delivery.egress import is_metadata_address
from fleet.delivery.reply import MAX_REPLY_BODY_BYTES, MAX_REPLY_HEADER_BYTES, Reply, read_headers

HttpVersion = Literal["HTTP_2", "HTTP_1_1"]
Done = Callable[[Reply], None]

_EVENTS_PER_WAKE = 512
_EXPECT_FROM_BYTES = 1024 * 1024  # from here on libcurl would ask "100-continue" and wait for it
_RESPONSE_CODE: int = pycurl.RESPONSE_CODE
_HTTPHEADER: int = pycurl.HTTPHEADER
_POSTFIELDS: int = pycurl.POSTFIELDS
_SOCKET_TIMEOUT: int = pycurl.SOCKET_TIMEOUT
_POLL_REMOVE: int = pycurl.POLL_REMOVE
_EPOLL_MASK = {
    pycurl.POLL_NONE: 0,
    pycurl.POLL_IN: select.EPOLLIN,
    pycurl.POLL_OUT: select.EPOLLOUT,
    pycurl.POLL_INOUT: select.EPOLLIN | select.EPOLLOUT,
}
_HTTP_VERSION = {"HTTP_2": pycurl.CURL_HTTP_VERSION_2TLS, "HTTP_1_1": pycurl.CURL_HTTP_VERSION_1_1}


class BadUrl(Exception):
    """What was to be called is not a URL."""


class Transfer:
    """One request in flight."""

    __slots__ = ("_client", "_done", "_easy", "_started")

    def __init__(self, client: HttpClient, easy: _Easy, done: Done, started: float) -> None:
        self._client = client
        self._easy: _Easy | None = easy
        self._done: Done | None = done
        self._started = started

    def abort(self) -> None:
        """End it now: its connection is closed, `done` is not called. Without effect once it has ended."""
        self._done = None
        if self._easy is not None:
            self._client._release(self._easy)


class _Easy:
    """A reused libcurl handle, and what its callbacks gather."""

    __slots__ = ("chunks", "curl", "forbidden_address", "headers", "timeout_ms", "transfer", "url")

    def __init__(self, curl: Any) -> None:
        self.curl = curl
        self.chunks: list[bytes] = []
        self.headers = bytearray()
        self.forbidden_address = ""
        self.url = ""
        self.timeout_ms = 0
        self.transfer: Transfer | None = None


class _Lent:
    """A new socket on its way into libcurl: pycurl duplicates the descriptor and drops this."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def __del__(self) -> None:
        os.close(self._fd)


class HttpClient:
    """POSTs, each with a deadline. Bound to the event loop that it is made on, and used from there only."""

    def __init__(
        self,
        *,
        http_version: HttpVersion = "HTTP_2",
        connect_timeout_ms: int = 30_000,
        max_idle_connections: int = 1024,
        forbidden: Callable[[str], bool] = is_metadata_address,
        ca_file: str | None = None,
    ) -> None:
        """`forbidden` is asked about each address before a connection to it is opened, not about reused ones.

        `max_idle_connections` belongs above the number of requests in flight, or connections are not kept.
        """
        self.before_io: Callable[[], None] = _nothing
        """Called before libcurl may write or read: the last moment to abort what must not be sent any more."""
        self._loop = asyncio.get_running_loop()
        self._http_version = http_version
        self._connect_timeout_ms = connect_timeout_ms
        self._forbidden = forbidden
        self._ca_file = ca_file or _system_ca_file()
        self._closed = False
        self._idle: list[_Easy] = []
        self._busy: dict[Any, _Easy] = {}  # by curl handle
        self._pumping = False
        self._due_now = False
        self._timer: asyncio.TimerHandle | None = None
        self._epoll = select.epoll()
        self._parked: set[int] = set()  # sockets still in the epoll, whose events libcurl does not want now
        self._multi: Any = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        self._multi.setopt(pycurl.M_MAXCONNECTS, max_idle_connections)
        self._loop.add_reader(self._epoll.fileno(), self._on_events)

    @property
    def in_flight(self) -> int:
        return len(self._busy)

    def post(self, url: str, headers: list[str], body: bytes, *, timeout_ms: int, done: Done) -> Transfer:
        """Send one request. `done` is called once, later, unless the transfer is aborted before.

        BadUrl for what libcurl refuses at once; `done` hears of what it refuses later.
        """
        if self._closed:
            raise RuntimeError("the HTTP client is closed")
        if timeout_ms <= 0:
            raise ValueError("a request needs a deadline")  # to libcurl 0 means: none
        easy = self._idle.pop() if self._idle else self._new_easy()
        curl = easy.curl
        try:
            if easy.url != url:
                easy.url = ""
                _set_url(curl, url)
                easy.url = url
            if easy.timeout_ms != timeout_ms:
                curl.setopt(pycurl.TIMEOUT_MS, timeout_ms)
                easy.timeout_ms = timeout_ms
            _set_headers(curl, headers if len(body) < _EXPECT_FROM_BYTES else [*headers, "Expect:"])
            curl.setopt(_POSTFIELDS, body)
            self._multi.add_handle(curl)
        except BaseException:
            self._idle.append(easy)
            raise
        easy.transfer = transfer = Transfer(self, easy, done, perf_counter())
        self._busy[curl] = easy
        return transfer

    def close(self) -> None:
        """Abort what is in flight and close every connection."""
        if self._closed:
            return
        self._closed = True
        for easy in list(self._busy.values()):
            self._release(easy)
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._epoll.fileno())
        self._multi.close()
        for easy in self._idle:
            easy.curl.close()
        self._idle.clear()
        self._epoll.close()

    def _on_events(self) -> None:
        act = self._multi.socket_action
        parked = self._parked
        self._pumping = True
        try:
            self.before_io()
            for fd, events in self._epoll.poll(0, _EVENTS_PER_WAKE):
                if fd in parked:
                    # An event of an idle connection is its end. libcurl finds out when it wants to use it.
                    parked.discard(fd)
                    self._epoll.unregister(fd)
                elif events == select.EPOLLIN:
                    act(fd, pycurl.CSELECT_IN)
                else:
                    # A hang-up or an error is read like data: libcurl then meets the error itself.
                    readable = pycurl.CSELECT_IN if events & ~select.EPOLLOUT else 0
                    act(fd, readable | (pycurl.CSELECT_OUT if events & select.EPOLLOUT else 0))
            self._collect()
            if self._due_now and not self._closed:
                # What the callbacks have just posted leaves in this turn of the loop.
                self._due_now = False
                self.before_io()
                act(_SOCKET_TIMEOUT, 0)
                self._collect()
        finally:
            self._pumping = False
            if self._due_now:
                self._loop.call_soon(self._on_due)

    def _on_due(self) -> None:
        if self._closed:
            return
        self._due_now = False
        self.before_io()
        self._multi.socket_action(_SOCKET_TIMEOUT, 0)
        self._collect()

    def _on_timer_due(self) -> None:
        self._timer = None
        self._on_due()

    def _on_timer(self, timeout_ms: int) -> None:
        """libcurl wants to be called in `timeout_ms`. Called too early it only asks again, so timers may stay."""
        if timeout_ms == 0:
            if not self._due_now:
                self._due_now = True
                if not self._pumping:
                    self._loop.call_soon(self._on_due)
        elif timeout_ms > 0:
            due = self._loop.time() + timeout_ms / 1000
            if self._timer is not None:
                if self._timer.when() <= due:
                    return
                self._timer.cancel()
            self._timer = self._loop.call_at(due, self._on_timer_due)

    def _on_socket(self, what: int, fd: int, _multi: Any, _data: Any) -> None:
        if what == _POLL_REMOVE:
            # A connection kept alive comes back with the next request: leave it in the epoll until then.
            # A socket that is closed leaves the epoll by itself.
            self._parked.add(fd)
            return
        mask = _EPOLL_MASK[what]
        self._parked.discard(fd)
        try:
            # Asks the kernel each time: the number may stand for a new socket by now.
            self._epoll.modify(fd, mask)
        except FileNotFoundError:
            self._epoll.register(fd, mask)

    def _collect(self) -> None:
        """Take in what has ended, and only then call back: a callback may post, abort or close."""
        if self._closed:
            return
        _, succeeded, failed = self._multi.info_read()
        if not succeeded and not failed:
            return
        now = perf_counter()
        ended: list[tuple[Transfer, Reply]] = []
        for curl in succeeded:
            easy = self._busy[curl]
            chunks = easy.chunks
            reply = Reply(
                curl.getinfo(_RESPONSE_CODE),
                (chunks[0] if len(chunks) == 1 else b"".join(chunks)) if chunks else b"",
                0.0,
            )
            headers = easy.headers
            if reply.status != 200 or not headers.endswith(b"\r\n\r\n") or b"content-encoding" in headers.lower():
                _add_headers(reply, easy)
            ended.append(self._end(easy, reply, now))
        for curl, code, text in failed:
            easy = self._busy[curl]
            ended.append(self._end(easy, _failure(easy, code, text), now))
        for transfer, reply in ended:
            done = transfer._done
            if done is None:  # aborted by a callback just before
                continue
            try:
                done(reply)
            except Exception as error:
                # One request's callback must not take the replies of the others with it.
                self._loop.call_exception_handler({"message": "callback of an HTTP request", "exception": error})

    def _end(self, easy: _Easy, reply: Reply, now: float) -> tuple[Transfer, Reply]:
        transfer = easy.transfer
        assert transfer is not None
        reply.seconds = now - transfer._started
        self._release(easy)
        return transfer, reply

    def _release(self, easy: _Easy) -> None:
        """Take a handle out of libcurl and make it ready for the next request."""
        self._multi.remove_handle(easy.curl)
        del self._busy[easy.curl]
        if easy.transfer is not None:
            easy.transfer._easy = None
            easy.transfer = None
        easy.chunks.clear()
        easy.headers.clear()
        if easy.forbidden_address:
            easy.forbidden_address = ""
        self._idle.append(easy)

    def _new_easy(self) -> _Easy:
        curl: Any = pycurl.Curl()
        easy = _Easy(curl)
        headers = easy.headers
        gather = headers.extend

        def on_header(line: bytes) -> int | None:
            gather(line)
            # Any number but the line's own length ends the transfer.
            return 0 if len(headers) > MAX_REPLY_HEADER_BYTES else None

        def on_connect(_purpose: int, address: tuple[int, int, int, tuple[Any, ...]]) -> Any:
            family, kind, protocol, name = address
            host = name[0] if isinstance(name, tuple) else ""
            host = host.decode() if isinstance(host, bytes) else host
            if self._forbidden(host):
                easy.forbidden_address = host or "an address that is not IP"
                return pycurl.SOCKET_BAD
            return _Lent(socket.socket(family, kind, protocol).detach())

        setopt = curl.setopt
        setopt(pycurl.POST, 1)
        setopt(pycurl.USERAGENT, "fleet")
        setopt(pycurl.HEADERFUNCTION, on_header)
        setopt(pycurl.WRITEFUNCTION, easy.chunks.append)  # bounded by libcurl, with or without a Content-Length:
        setopt(pycurl.MAXFILESIZE_LARGE, MAX_REPLY_BODY_BYTES)
        setopt(pycurl.OPENSOCKETFUNCTION, on_connect)
        setopt(pycurl.CONNECTTIMEOUT_MS, self._connect_timeout_ms)
        setopt(pycurl.HTTP_VERSION, _HTTP_VERSION[self._http_version])
        setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        setopt(pycurl.FOLLOWLOCATION, 0)
        setopt(pycurl.PROXY, "")  # not unset: unset would look into the environment
        setopt(pycurl.NOSIGNAL, 1)
        setopt(pycurl.TCP_NODELAY, 1)
        setopt(pycurl.TCP_KEEPALIVE, 1)  # an answer may take a quarter of an hour, longer than a NAT remembers
        setopt(pycurl.PATH_AS_IS, 1)
        setopt(pycurl.CAINFO, self._ca_file)
        return easy


def _nothing() -> None:
    pass


def _system_ca_file() -> str:
    # The libcurl inside pycurl's wheel looks where the distribution it was built on keeps its certificates.
    return ssl.get_default_verify_paths().cafile or certifi.where()


def _set_url(curl: Any, url: str) -> None:
    try:
        curl.setopt(pycurl.URL, url if url.isascii() else url.encode())  # pycurl takes ASCII in a str
    except pycurl.error as error:
        if error.args[0] in (pycurl.E_URL_MALFORMAT, pycurl.E_BAD_FUNCTION_ARGUMENT):
            raise BadUrl(f"libcurl refuses this URL of {len(url)} characters") from error
        raise


def _set_headers(curl: Any, headers: list[str]) -> None:
    try:
        curl.setopt(_HTTPHEADER, headers)
    except UnicodeEncodeError:
        curl.setopt(_HTTPHEADER, [line.encode() for line in headers])


def _add_headers(reply: Reply, easy: _Easy) -> None:
    headers = read_headers(bytes(easy.headers))
    reply.encoded, reply.retry_after, reply.fenced = headers.encoded, headers.retry_after, headers.fenced
    if not headers.complete:
        # To libcurl a connection closed after the status line is a whole reply. To us it would be an ack.
        reply.error, reply.detail = "RESET", "connection closed within the reply's head"


def _failure(easy: _Easy, code: int, text: str) -> Reply:
    curl = easy.curl
    reply = Reply(curl.getinfo(_RESPONSE_CODE), b"".join(easy.chunks)[:MAX_REPLY_BODY_BYTES], 0.0)
    _add_headers(reply, easy)
    if code == pycurl.E_FILESIZE_EXCEEDED:
        reply.oversize = True
    elif easy.forbidden_address and code == pycurl.E_COULDNT_CONNECT:
        reply.error, reply.detail = "FORBIDDEN_ADDRESS", f"{easy.forbidden_address} is never called"
    elif len(easy.headers) > MAX_REPLY_HEADER_BYTES:
        reply.error, reply.detail = "PROTOCOL", f"reply headers of more than {MAX_REPLY_HEADER_BYTES} bytes"
    else:
        reply.error = error_kind(code, sent=curl.getinfo(pycurl.REQUEST_SIZE) > 0)
        reply.detail = text or f"libcurl error {code}"
    return reply
