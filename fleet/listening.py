"""A process that answers HTTP: its socket, and uvicorn as we run it."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from fleet.errors import FleetError, InvalidConfig

STOP_WITHIN_S = 5
BACKLOG = 1024


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """The listening socket; an error says in one line why there is none. `shared`: with other processes of ours."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            found.bind(address)
            found.listen(BACKLOG)
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


class UvicornServer(uvicorn.Server):
    def __init__(self, app: Any) -> None:
        super().__init__(_options(app))

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are ours: the process says goodbye to the fleet first."""
        yield


def _options(app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        # A line a request would bury what matters, and a query may hold what is nobody's business.
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=STOP_WITHIN_S,
    )
