"""Ways in which a Redis that answers refuses to write, each for as long as its block lasts."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

import redis

from tests.servers.local import RedisServer
from tests.servers.ports import free_port
from tests.waiting import until

_WAIT_S = 15.0


@contextmanager
def readonly(server: RedisServer) -> Iterator[None]:
    """READONLY: demoted to the replica of a master that does not answer. Its data stays."""
    with server.client() as admin:
        admin.execute_command("REPLICAOF", "127.0.0.1", free_port())
        try:
            yield
        finally:
            admin.execute_command("REPLICAOF", "NO", "ONE")


@contextmanager
def disk_full(server: RedisServer) -> Iterator[None]:
    """MISCONF: it cannot save, and takes no writes until it can. The obstacle stops root too."""
    with server.client() as admin:
        obstacle = Path(admin.config_get("dir")["dir"], admin.config_get("dbfilename")["dbfilename"], "in the way")
        before = admin.config_get("save")["save"]
        admin.config_set("save", "3600 1000000")
        obstacle.parent.unlink(missing_ok=True)  # what it saved before
        obstacle.mkdir(parents=True)
        try:
            _save(admin, "err")
            yield
        finally:
            shutil.rmtree(obstacle.parent)
            _save(admin, "ok")
            admin.config_set("save", before)


@contextmanager
def too_few_replicas(server: RedisServer) -> Iterator[None]:
    """NOREPLICAS: like a master that is cut off from its replicas."""
    with server.client() as admin:
        admin.config_set("min-replicas-to-write", "1")
        try:
            yield
        finally:
            admin.config_set("min-replicas-to-write", "0")


@contextmanager
def busy(server: RedisServer) -> Iterator[None]:
    """BUSY: somebody's script does not end, until it is killed."""
    with server.client() as admin:
        before = admin.config_get("lua-time-limit")["lua-time-limit"]
        admin.config_set("lua-time-limit", "20")
        runner = threading.Thread(target=_never_end, args=(server,), daemon=True)
        runner.start()
        until(lambda: is_busy(admin), _WAIT_S)
        try:
            yield
        finally:
            admin.script_kill()
            runner.join(_WAIT_S)
            until(lambda: not is_busy(admin), _WAIT_S)
            admin.config_set("lua-time-limit", before)


REFUSALS: dict[str, Callable[[RedisServer], AbstractContextManager[None]]] = {
    "READONLY": readonly,
    "MISCONF": disk_full,
    "NOREPLICAS": too_few_replicas,
    "BUSY": busy,
}


def _save(admin: redis.Redis, status: str) -> None:
    admin.bgsave()
    until(lambda: admin.info("persistence")["rdb_bgsave_in_progress"] == 0, _WAIT_S)
    assert admin.info("persistence")["rdb_last_bgsave_status"] == status


def _never_end(server: RedisServer) -> None:
    with suppress(redis.RedisError), redis.Redis(port=server.port, socket_timeout=None) as client:
        client.eval("while true do end", 0)


def is_busy(admin: redis.Redis) -> bool:
    try:
        admin.get("nothing")
    except redis.ResponseError as error:
        return str(error).startswith("BUSY")
    return False
