"""Who may ask: tokens with two roles, and on loopback without tokens nobody from a web page of somebody else."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fleet.errors import InvalidConfig
from fleet.server.answers import Json, error
from fleet.settings import ServerSettings

Role = Literal["viewer", "operator"]

_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_ASK = {"WWW-Authenticate": 'Bearer, Basic realm="fleet", charset="UTF-8"'}
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff", "x-frame-options": "DENY"}


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class Tokens:
    operator: str = field(default="", repr=False)
    viewer: str = field(default="", repr=False)

    @staticmethod
    def of(settings: ServerSettings, host: str) -> Tokens:
        """InvalidConfig where everybody on the network could do everything."""
        if not is_loopback(host) and not settings.token:
            raise InvalidConfig(f"listening on {host} needs a token: set FLEET_SERVER_TOKEN (or listen on 127.0.0.1)")
        return Tokens(settings.token, settings.viewer_token)

    @property
    def any(self) -> bool:
        return bool(self.operator or self.viewer)

    def role_of(self, token: str) -> Role | None:
        given = token.encode()
        # Both always: how long it takes says nothing of either.
        is_operator = hmac.compare_digest(given, self.operator.encode()) and bool(self.operator)
        is_viewer = hmac.compare_digest(given, self.viewer.encode()) and bool(self.viewer)
        return "operator" if is_operator else "viewer" if is_viewer else None


class Guard:
    """Stands before everything. Probes pass: one that needs a login would take us out of service."""

    def __init__(self, app: ASGIApp, *, tokens: Tokens) -> None:
        self._app = app
        self._tokens = tokens

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
        refusal = None if is_probe else self._refusal(scope["method"], headers)
        await (refusal or self._app)(scope, receive, with_headers)

    def _refusal(self, method: str, headers: Headers) -> Json | None:
        is_write = method not in _READS
        if is_write and not _is_same_origin(headers):
            return error(403, "requests from pages of another origin change nothing here")
        if not self._tokens.any:
            # A name that somebody else points to us would make their page ours.
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
    """Of `Bearer TOKEN`, or the password of Basic, which is what browsers can ask people for."""
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
