"""Celery and kombu with our SQS door as their broker, by either protocol."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
import pytest
from kombu.connection import Connection

from tests.servers.aws_models import write_query_models
from tests.servers.local import ServerProcess, _running
from tests.servers.sqs_door import SqsDoor
from tests.waiting import let_pass, until

ROOT = Path(__file__).parents[2]
APP = "tests.acceptance.sqs_clients.celery_app"
TASKS = 1000


class Clients:
    """What speaks to one queue: a sender, and workers in groups of processes."""

    def __init__(self, door: SqsDoor, directory: Path, protocol: str) -> None:
        self.queue = f"celery-{secrets.token_hex(5)}"
        self.url = f"{door.url}/000000000000/{self.queue}"
        self.journal = directory / "journal"
        self._directory = directory
        self.environment = {"BROKER_URL": f"sqs://any:any@127.0.0.1:{door.port}//", "QUEUE": self.queue}
        if protocol == "query":
            self.environment["AWS_DATA_PATH"] = write_query_models(directory)

    def send(self, count: int) -> None:
        command = [sys.executable, "-m", APP, str(count), str(self.journal)]
        done = subprocess.run(
            command, env={**os.environ, **self.environment}, cwd=ROOT, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr[-2000:]

    @contextmanager
    def worker(self, name: str) -> Iterator[ServerProcess]:
        options = ["--concurrency", "2", "--loglevel", "WARNING", "--without-gossip", "--without-mingle"]
        command = [sys.executable, "-m", "celery", "-A", APP, "worker", "-n", name, *options, "--without-heartbeat"]
        with _running(command, self._directory / f"{name}.log", self.environment) as worker:
            try:
                yield worker
            finally:
                # Its children have its group; one that was killed has ended, and they may live on.
                try:
                    os.killpg(worker.pid, signal.SIGTERM)
                    worker.process.wait(20)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    pass

    def noted(self) -> Counter[int]:
        return Counter(map(int, self.journal.read_text().split())) if self.journal.exists() else Counter()

    def said(self) -> str:
        return "\n".join(f"{log.name}: {log.read_text()[-1500:]}" for log in sorted(self._directory.glob("*.log")))


def stands_still_with_work(worker: ServerProcess, door: SqsDoor, url: str) -> bool:
    """Whether it was stopped while it had messages. If it had none it goes on."""
    os.killpg(worker.pid, signal.SIGSTOP)
    let_pass(0.1)  # what it had asked the door by then is answered
    if door.counts(url)[1]:
        return True
    os.killpg(worker.pid, signal.SIGCONT)
    return False


@pytest.mark.parametrize("protocol", ["json", "query"])
def test_every_task_of_celery_runs_though_a_worker_is_killed_among_them(
    sqs_door: SqsDoor, tmp_path: Path, protocol: str
) -> None:
    clients = Clients(sqs_door, tmp_path, protocol)
    clients.send(TASKS)
    assert sqs_door.counts(clients.url)[0] == TASKS
    with clients.worker("first") as first:
        until(lambda: len(clients.noted()) >= TASKS // 4, 60, clients.said, every_s=0.01)
        until(lambda: stands_still_with_work(first, sqs_door, clients.url), 30, clients.said, every_s=0.05)
        os.killpg(first.pid, signal.SIGKILL)
        first.process.wait(10)
    assert len(clients.noted()) < TASKS, "it was killed too late"
    with clients.worker("second"):
        until(lambda: len(clients.noted()) == TASKS, 120, clients.said, every_s=0.05)
        until(lambda: sqs_door.counts(clients.url) == (0, 0, 0), 30, clients.said, every_s=0.05)
    # What comes again is what the first one had, and no more than its processes and its prefetch hold.
    twice = sum(clients.noted().values()) - TASKS
    assert twice <= 2 + 2 * 4, clients.said()


@pytest.mark.parametrize("protocol", ["json", "query"])
def test_kombu_puts_gets_requeues_counts_and_purges(
    sqs_door: SqsDoor, tmp_path: Path, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if protocol == "query":
        monkeypatch.setenv("AWS_DATA_PATH", write_query_models(tmp_path))
    spoken = boto3.session.Session().client("sqs", region_name="us-east-1").meta.service_model.resolved_protocol
    assert spoken == protocol
    options = {"is_secure": False, "region": "us-east-1", "visibility_timeout": 60, "wait_time_seconds": 1}
    name = f"kombu-{secrets.token_hex(5)}"
    broker = f"sqs://any:any@127.0.0.1:{sqs_door.port}//"
    with Connection(broker, transport_options=options) as connection:  # type: ignore[no-untyped-call]
        queue = connection.SimpleQueue(name)
        for number in range(25):
            queue.put({"number": number, "text": "größe ✓"})
        got: Counter[int] = Counter()
        for _ in range(26):
            message = queue.get(timeout=10)
            assert message.payload["text"] == "größe ✓"
            number = message.payload["number"]
            got[number] += 1
            if (number, got[number]) == (3, 1):
                message.requeue()
            else:
                message.ack()
        assert got == {**dict.fromkeys(range(25), 1), 3: 2}
        for number in range(5):
            queue.put(number)
        assert queue.qsize() == 5
        queue.clear()
        assert queue.qsize() == 0
        with pytest.raises(queue.Empty):
            queue.get(timeout=1)
        queue.close()
