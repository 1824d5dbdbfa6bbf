"""Fleet as its users run it: processes of the `fleet` command, a router configuration, an embedded queue."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import redis

from benchmark.errors import BenchError
from benchmark.ground import Ground
from benchmark.machine import child
from benchmark.machine.servers import RedisServer, fresh_redis
from fleet.state.keys import FAMILIES, FleetKeys, PoolKeys, QueueKeys

POOL = "BENCH"
QUEUE = "bench"
START_S = 30.0
_STEP_S = 0.02


@dataclass(slots=True, kw_only=True)
class Crew:
    """Processes of one attempt, by what they do: `coordinator`, `worker 1` …"""

    log: Path
    named: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def processes(self) -> Sequence[subprocess.Popen[bytes]]:
        return list(self.named.values())

    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self.named.items()}

    def await_that(self, what: str, is_so: Callable[[], bool]) -> None:
        """Wait until it is so, unless a process ends before."""
        deadline = time.monotonic() + START_S
        while not is_so():
            for name, process in self.named.items():
                if process.poll() is not None:
                    raise BenchError(f"{name} ended ({process.returncode}): {child.last_line(self.log)}")
            if time.monotonic() > deadline:
                raise BenchError(f"{what} took more than {START_S:.0f} s: {child.last_line(self.log)}")
            time.sleep(_STEP_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class House:
    """One attempt's Redis, folder and queue file. Nothing of it is left for the next attempt."""

    ground: Ground
    server: RedisServer
    client: redis.Redis
    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / "fleet.log"

    @property
    def queue_uri(self) -> str:
        return f"sqlite:///{self.folder / 'queue.db'}?queue={QUEUE}"

    def write_config(
        self,
        pools: Sequence[Mapping[str, object]],
        *,
        with_queue: bool = True,
        queue_uri: str = "",
        connections: int = 1,
    ) -> None:
        queue = {"queueName": QUEUE, "queueUri": queue_uri or self.queue_uri, "connections": connections}
        queues = [queue] if with_queue else []
        self._config.write_text(json.dumps({"queues": queues, "processingPools": list(pools)}))

    @property
    def _config(self) -> Path:
        return self.folder / "router.json"

    @contextmanager
    def crew(
        self,
        *,
        workers: int = 0,
        coordinators: int = 0,
        synced: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> Iterator[Crew]:
        """Start them, a syncer first where a configuration was written; stop all in the end, the syncer last."""
        with ExitStack() as stack:
            crew = Crew(log=self.log)
            if synced:
                self.start(stack, crew, "syncer", "syncer", more=environment)
                crew.await_that("the first sync", self._has_all_pools)
            for number in range(1, coordinators + 1):
                name = "coordinator" if coordinators == 1 else f"coordinator {number}"
                self.start(stack, crew, name, "coordinator", more=environment)
            for number in range(1, workers + 1):
                self.start(stack, crew, f"worker {number}", "worker")
            yield crew

    def start(
        self, stack: ExitStack, crew: Crew, name: str, *arguments: str, more: Mapping[str, str] | None = None
    ) -> None:
        """One `fleet` command. It runs in a folder of ours, so it does not find a fleet.toml of somebody else."""
        environment = {
            "FLEET_REDIS_URL": self.server.url,
            "FLEET_DATA_DIR": str(self.folder / "data"),
            "FLEET_CONFIG": str(self._config) if self._config.exists() else "",
            **(more or {}),
        }
        command = [str(Path(sys.executable).with_name("fleet")), *arguments]
        process = child.start(command, log=self.log, cwd=self.folder, environment=environment)
        stack.callback(child.stop, [process])
        crew.named[name] = process

    def _has_all_pools(self) -> bool:
        wanted = {pool["code"] for pool in json.loads(self._config.read_text())["processingPools"]}
        return wanted <= set(self.client.smembers(FleetKeys.pools))

    # What is left --------------------------------------------------------------------------------

    def pool_left(self, code: str = POOL) -> int:
        """What a pool holds: messages, and outcomes that are not known to have reached their queues."""
        keys = PoolKeys(code)
        with self.client.pipeline(transaction=True) as pipe:
            pipe.hlen(keys.entries)
            pipe.scard(keys.outboxes)
            return sum(int(count) for count in pipe.execute())

    def queue_left(self) -> dict[str, int]:
        keys = QueueKeys(QUEUE)
        with self.client.pipeline(transaction=True) as pipe:
            pipe.hlen(keys.tracked)
            pipe.llen(keys.settled)
            pipe.llen(keys.dead)
            tracked, settled, dead = (int(count) for count in pipe.execute())
        return {"tracked": tracked, "settled": settled, "dead": dead}

    def strange_keys(self) -> list[str]:
        """Keys outside the families that may remain after everything is delivered and acked."""
        return sorted(
            key for key in self.client.scan_iter(count=1000) if not any(fnmatchcase(key, family) for family in FAMILIES)
        )


@contextmanager
def house(ground: Ground) -> Iterator[House]:
    with fresh_redis(ground.scratch) as server, server.client() as client:
        folder = Path(tempfile.mkdtemp(prefix="fleet-", dir=ground.scratch))
        yield House(ground=ground, server=server, client=client, folder=folder)
