"""A real nats-server with JetStream, on loopback, whose storage outlives a kill."""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.local import ServerProcess, _program, _running, _wait_for
from tests.servers.ports import free_port


class Refused(Exception):
    """The server refused."""


@dataclass
class NatsServer:
    server: ServerProcess
    port: int
    user: str = ""
    password: str = ""

    def uri(self, stream: str, consumer: str = "fleet", *, port: int | None = None, options: str = "") -> str:
        login = f"{self.user}:{self.password}@" if self.user else ""
        return f"nats://{login}127.0.0.1:{port or self.port}/{stream}/{consumer}{options}"

    def add_stream(self, stream: str, **config: Any) -> dict[str, Any]:
        """With one subject, named like the stream, unless told otherwise."""
        config = {"name": stream, "subjects": [stream], "storage": "file", "retention": "workqueue"} | config
        return self.api(f"STREAM.CREATE.{stream}", config)

    def new_stream(self, **config: Any) -> str:
        name = f"T{secrets.token_hex(6)}"
        self.add_stream(name, **config)
        return name

    def api(self, verb: str, request: Any = None) -> dict[str, Any]:
        """Ask JetStream, without the library that the adapter uses."""
        payload = json.dumps(request).encode() if request is not None else b""
        told: dict[str, Any] = json.loads(self.request(f"$JS.API.{verb}", payload))
        if "error" in told:
            raise Refused(told["error"]["description"])
        return told

    def request(self, subject: str, payload: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as line, line.makefile("rb") as lines:
            lines.readline()  # INFO
            login = {"user": self.user, "pass": self.password} if self.user else {}
            hello = json.dumps({"verbose": False, "headers": True, "no_responders": True} | login)
            inbox = f"_INBOX.{secrets.token_hex(8)}"
            head = f"CONNECT {hello}\r\nSUB {inbox} 1\r\nPUB {subject} {inbox} {len(payload)}\r\n"
            line.sendall(head.encode() + payload + b"\r\n")
            while words := lines.readline().split():
                if words[0] == b"PING":
                    line.sendall(b"PONG\r\n")
                elif words[0] in (b"MSG", b"HMSG"):
                    if words[0] == b"HMSG":
                        raise Refused(lines.read(int(words[-1])).decode(errors="replace").strip())
                    return lines.read(int(words[-1]))
                elif words[0] == b"-ERR":
                    raise Refused(b" ".join(words).decode())
        raise Refused("the server hung up")


@contextmanager
def running_nats(
    directory: Path, *, port: int | None = None, user: str = "", password: str = ""
) -> Iterator[NatsServer]:
    """Started again with the same directory and port, it is the one that was killed."""
    chosen = port or free_port()
    conf, log = directory / "nats.conf", directory / "nats.log"
    login = f'authorization {{ user: "{user}", password: "{password}" }}\n' if user else ""
    conf.write_text(
        f'listen: "127.0.0.1:{chosen}"\nserver_name: t{chosen}\npid_file: "{directory}/nats.pid"\n{login}'
        f'jetstream {{ store_dir: "{directory}/store", max_memory_store: 64MB, max_file_store: 4GB }}\n'
    )
    with _running([_program("nats-server"), "-c", str(conf)], log) as server:
        found = NatsServer(server, chosen, user, password)
        _wait_for(server, lambda: _answers(found))
        yield found


def _answers(found: NatsServer) -> bool:
    with suppress(OSError, Refused, ValueError):
        return "streams" in found.api("INFO")
    return False
