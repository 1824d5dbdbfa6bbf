"""Who may ask: tokens with two roles; or, without tokens, anybody on loopback except another site's web page.

The processing endpoint asks for the token of its job instead, and bounds by itself how many it works on: a slow target
must not take the seats of people who are finding out what is wrong.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fleet.listening import is_loopback
from fleet.server import processing_endpoint
from fleet.server.answers import Json, error
from fleet.server.door import Tokens

AT_ONCE = 50
"""Requests worked on at once. Each needs a connection to Redis, and waits for one where all are taken."""
_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_ASK = {"WWW-Authenticate": 'Bearer, Basic realm="fleet", charset="UTF-8"'}
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff", "x-frame-options": "DENY"}


class Guard:
    """Stands before everything. Probes pass: one that needed a login would take us out of service."""

    def __init__(self, app: ASGIApp, *, tokens: Tokens) -> None:
        self._app = app
        self._tokens = tokens
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        headers, path = Headers(scope=scope), scope["path"]
        is_probe = path == "/health" or path.startswith("/health/")
        refusal = None if is_probe else self._refusal(scope["method"], path, headers)
        if is_probe or path in ("/events", processing_endpoint.PATH) or refusal:
            # Probes and refusals must not wait, events never end, and a dispatch job ends when its target likes.
            await (refusal or self._app)(scope, receive, with_headers)
            return
        async with self._at_once:
            await self._app(scope, receive, with_headers)

    def _refusal(self, method: str, path: str, headers: Headers) -> Json | None:
        is_write = method not in _READS
        if is_write and not _is_same_origin(headers):
            return error(403, "requests from pages of another origin change nothing here")
        if path == processing_endpoint.PATH:
            return None
        if not self._tokens.any:
            # A host name that somebody else points at us would make their page one of ours.
            if is_loopback(_host_name(headers.get("host", ""))):
                return None
            return error(403, "without a token only names of loopback are answered: localhost or 127.0.0.1")
        role = self._tokens.role_of(_token(headers.get("authorization", "")))
        if role is None:
            return error(401, "needs a token: Authorization: Bearer TOKEN", headers=_ASK)
        if is_write and role != "operator":
            return error(403, "needs the role operator, this token is of a viewer")
        return None


def _token(authorization: str) -> str:
    """The token of `Bearer TOKEN`, or the password of Basic, which is what browsers can ask people for."""
    scheme, _, value = authorization.partition(" ")
    match scheme.lower():
        case "bearer":
            # A header is bytes; Starlette reads them as Latin-1.
            return value.strip().encode("latin-1").decode("utf-8", "replace")
        case "basic":
            try:
                return base64.b64decode(value.strip(), validate=True).decode().partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                return ""
        case _:
            return ""


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_same_origin(headers: Headers) -> bool:
    origin = headers.get("origin")
    return origin is None or origin.partition("://")[2] == headers.get("host")
