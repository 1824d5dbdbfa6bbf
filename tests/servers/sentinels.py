"""A primary, replicas and three sentinels, all real, on loopback and free ports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.servers.local import RedisServer, ServerProcess, _program, _running, _wait_for, running_redis
from tests.servers.ports import free_port
from tests.waiting import until

MASTER = "fleet"
SENTINELS, QUORUM = 3, 2
DOWN_AFTER_MS = 1000


@dataclass
class Watched:
    """A master with replicas, and the sentinels that fail it over."""

    servers: list[RedisServer]
    """The first one begins as the master."""
    sentinels: list[ServerProcess]
    ports: list[int]
    password: str = ""
    sentinel_password: str = ""

    @property
    def url(self) -> str:
        user = f":{self.password}@" if self.password else ""
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        options = f"?sentinel_password={self.sentinel_password}" if self.sentinel_password else ""
        return f"sentinel://{user}{hosts}/{MASTER}/0{options}"

    def sentinel(self, number: int = 0) -> redis.Redis:
        password = self.sentinel_password or None
        port, retry = self.ports[number], Retry(NoBackoff(), 0)
        return redis.Redis(port=port, decode_responses=True, password=password, socket_timeout=0.5, retry=retry)

    def client(self, server: RedisServer) -> redis.Redis:
        return redis.Redis(port=server.port, decode_responses=True, password=self.password or None)

    def master(self) -> RedisServer | None:
        """The one that most of the running sentinels name."""
        named: list[int] = []
        for number, process in enumerate(self.sentinels):
            if process.process.poll() is None:
                with suppress(redis.RedisError), self.sentinel(number) as client:
                    named.append(int(client.execute_command("SENTINEL GET-MASTER-ADDR-BY-NAME", MASTER)[1]))
        port = max(named, key=named.count) if named else 0
        return next((server for server in self.servers if server.port == port), None)

    def fail_over(self) -> RedisServer:
        """Demote the master while it works, as for maintenance. Returns the new one, once it takes writes."""
        old = self.master()
        with self.sentinel() as client:
            client.execute_command("SENTINEL FAILOVER", MASTER)
        return self.wait_for_another(old)

    def wait_for_another(self, old: RedisServer | None) -> RedisServer:
        until(lambda: self.master() not in (None, old) and self._writes(self.master()), why=lambda: "no other master")
        found = self.master()
        assert found is not None
        return found

    def wait_in_sync(self) -> None:
        """Wait until the master's replicas have all that it has."""

        def in_sync() -> bool:
            with suppress(redis.RedisError):
                master = self.master()
                if master is None:
                    return False
                with self.client(master) as client:
                    return len(client.info("replication").get("slave0", "")) > 0 and bool(client.wait(1, 1000))
            return False

        until(in_sync, why=lambda: "no replica in sync")

    def _writes(self, server: RedisServer | None) -> bool:
        if server is None:
            return False
        with suppress(redis.RedisError), self.client(server) as client:
            return bool(client.info("replication")["role"] == "master")
        return False


@contextmanager
def running_sentinels(
    directory: Path, *, password: str = "", sentinel_password: str = "", replicas: int = 1
) -> Iterator[Watched]:
    with ExitStack() as stack:
        guard = ["--requirepass", password, "--masterauth", password] if password else []
        # Without a wait before the replica is served: a test does not have the time of a data centre.
        options = ["--repl-diskless-sync-delay", "0", "--repl-timeout", "5", *guard]
        first = stack.enter_context(running_redis(*options, password=password))
        servers = [first]
        for _ in range(replicas):
            more = ["--replicaof", "127.0.0.1", str(first.port)]
            servers.append(stack.enter_context(running_redis(*options, *more, password=password)))
        found = Watched(servers, [], [free_port() for _ in range(SENTINELS)], password, sentinel_password)
        for number, port in enumerate(found.ports):
            conf = directory / f"sentinel-{number}.conf"
            conf.write_text(_conf(port, first.port, password, sentinel_password, directory))
            command = [_program("redis-server"), str(conf), "--sentinel"]
            process = stack.enter_context(_running(command, directory / f"sentinel-{number}.log"))
            found.sentinels.append(process)

            def answers(number: int = number) -> bool:
                with suppress(redis.RedisError), found.sentinel(number) as client:
                    return bool(client.ping())
                return False

            _wait_for(process, answers)
        until(
            lambda: all(_knows_all(found, number, replicas) for number in range(SENTINELS)),
            why=lambda: "they do not meet",
        )
        yield found


def _conf(port: int, master: int, password: str, sentinel_password: str, directory: Path) -> str:
    lines = [
        f"port {port}",
        "bind 127.0.0.1",
        f"dir {directory}",
        f"sentinel monitor {MASTER} 127.0.0.1 {master} {QUORUM}",
        f"sentinel down-after-milliseconds {MASTER} {DOWN_AFTER_MS}",
        f"sentinel failover-timeout {MASTER} 5000",
    ]
    if password:
        lines.append(f"sentinel auth-pass {MASTER} {password}")
    if sentinel_password:
        lines += [f"requirepass {sentinel_password}", f"sentinel sentinel-pass {sentinel_password}"]
    return "\n".join(lines) + "\n"


def _knows_all(found: Watched, number: int, replicas: int) -> bool:
    with suppress(redis.RedisError), found.sentinel(number) as client:
        known = client.sentinel_master(MASTER)
        return bool(known["num-other-sentinels"] == SENTINELS - 1 and known["num-slaves"] == replicas)
    return False
