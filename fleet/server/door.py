"""Where the server listens, and which tokens open it. Needs no web framework: every command imports it."""

from __future__ import annotations

import hmac
import ipaddress
import socket
from dataclasses import dataclass, field
from typing import Literal

from fleet.config.settings import ServerSettings
from fleet.errors import FleetError, InvalidConfig

Role = Literal["viewer", "operator"]


def listen(host: str, port: int) -> socket.socket:
    """The listening socket; an error says in one line why there is none."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
            found.listen(128)
        except BaseException:
            found.close()
            raise
    except socket.gaierror as error:
        raise InvalidConfig(f"cannot listen on {host}: {error.strerror}") from error
    except OSError as error:
        raise FleetError(f"cannot listen on {host} port {port}: {error.strerror}") from error
    return found


def address_of(found: socket.socket) -> str:
    host, port = found.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


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
        """InvalidConfig if everybody on the network could do everything."""
        if not is_loopback(host) and not settings.token:
            raise InvalidConfig(f"listening on {host} needs a token: set FLEET_SERVER_TOKEN (or listen on 127.0.0.1)")
        return Tokens(settings.token, settings.viewer_token)

    @property
    def any(self) -> bool:
        return bool(self.operator or self.viewer)

    def role_of(self, token: str) -> Role | None:
        given = token.encode()
        # Always compare both: how long it takes must say nothing about either.
        is_operator = hmac.compare_digest(given, self.operator.encode()) and bool(self.operator)
        is_viewer = hmac.compare_digest(given, self.viewer.encode()) and bool(self.viewer)
        return "operator" if is_operator else "viewer" if is_viewer else None
