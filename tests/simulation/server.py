"""What a Redis server does with a command: the store's commands, scripts, and the few that are about the server."""

from __future__ import annotations

from typing import Any

from tests.simulation.store import Store

VERSION = "7.2.0"
MAX_BYTES = 1_000_000


class Server:
    """One server. `full`, `readonly` and the rest are set on its store."""

    def __init__(self) -> None:
        self.store = Store()
        self.memory_share = 0.1

    def do(self, command: tuple[Any, ...]) -> Any:
        name, arguments = command[0], command[1:]
        if name == "EVALSHA":
            return self.store.evalsha(arguments[0], arguments[1], arguments[2:])
        if name == "EVAL":
            return self.store.eval(arguments[0], arguments[1], arguments[2:])
        if name == "INFO":
            return self._info()
        if name == "PING":
            return "PONG"
        if name == "SCRIPT FLUSH":
            self.store.forget_scripts()
            return "OK"
        if name == "CONFIG SET":
            self.store.full = arguments[0] == "maxmemory" and 0 < _bytes(arguments[1]) < self._used()
            return "OK"
        return self.store.command(name, *arguments)

    def _used(self) -> int:
        return round(self.memory_share * MAX_BYTES) + 100 * self.store.count()

    def _info(self) -> dict[str, Any]:
        return {
            "redis_mode": "standalone",
            "redis_version": VERSION,
            "used_memory": MAX_BYTES if self.store.full else self._used(),
            "maxmemory": MAX_BYTES,
            "maxmemory_policy": "noeviction",
        }


def _bytes(text: Any) -> int:
    number = str(text).lower()
    return int(number[:-2]) * 1024 * 1024 if number.endswith("mb") else int(number)
