"""Ports for the servers of tests. Each process that asks has a block of its own: two never choose the same."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from functools import cache
from itertools import cycle

_FIRST, _AFTER = 12_000, 22_000
"""With what stands 10,000 above them below the ephemeral range: nobody's outgoing connection takes one."""
_BLOCK = 250
"""More than a process has servers: a port comes again long after the one that had it."""
_turn = threading.Lock()
_claims: list[socket.socket] = []


class NoPort(Exception):
    """All blocks are taken, or all of ours are in use."""


def free_port(*, also: int = 0) -> int:
    """A port nobody listens on; with `also`, the one that far above it is free too."""
    with _turn:
        for _ in range(_BLOCK):
            port = next(_ours())
            if _bindable(port) and (not also or _bindable(port + also)):
                return port
    raise NoPort(f"{_BLOCK} ports are in use")


@cache
def _ours() -> Iterator[int]:
    """The first block that nobody has, round and round.

    Who has one holds a socket with its name. That name is in no folder, and the kernel takes it back however we end.
    """
    for first in range(_FIRST, _AFTER, _BLOCK):
        claim = socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0fleet-tests-ports-{first}")
        except OSError:
            claim.close()
            continue
        _claims.append(claim)
        return cycle(range(first, first + _BLOCK))
    raise NoPort(f"{(_AFTER - _FIRST) // _BLOCK} processes have all of them")


def _bindable(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
