"""AWS's SDK for JavaScript, and sqs-consumer on it, at our SQS door: they must notice nothing."""

from __future__ import annotations

import json
import secrets
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.servers.node import lay_out
from tests.servers.sqs_door import SqsDoor


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lay_out(tmp_path_factory.mktemp("clients"))


def run(programs: Path, program: str, *arguments: str) -> str:
    done = subprocess.run(["node", program, *arguments], cwd=programs, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("scenario", ["messages", "pages", "fifo", "throttling", "errors", "abort"])
def test_the_sdk_for_javascript_finds_what_it_finds_at_aws(programs: Path, sqs_door: SqsDoor, scenario: str) -> None:
    assert run(programs, "sdk.mjs", sqs_door.url, f"js-{secrets.token_hex(5)}", scenario) == "ok\n"


def send(door: SqsDoor, url: str, bodies: list[dict[str, Any]], *, fifo: bool) -> None:
    for first in range(0, len(bodies), 10):
        entries = [
            {
                "Id": f"{place}",
                "MessageBody": json.dumps(body),
                **(
                    {"MessageGroupId": f"g{body['body'] % 5}", "MessageDeduplicationId": f"{body['body']}"}
                    if fifo
                    else {}
                ),
            }
            for place, body in enumerate(bodies[first : first + 10])
        ]
        assert "Failed" not in door.ask("SendMessageBatch", QueueUrl=url, Entries=entries)


@pytest.mark.parametrize("how", ["single", "batch"])
def test_sqs_consumer_works_off_a_queue_and_gets_what_failed_again_at_once(
    programs: Path, sqs_door: SqsDoor, how: str
) -> None:
    url = sqs_door.make_queue(fifo=False)
    # Failing alone: in a batch of its own, nothing else goes back with it.
    bodies = [{"body": number, "fails": how == "single" and number % 50 == 7} for number in range(200)]
    send(sqs_door, url, bodies, fifo=False)
    seen = json.loads(run(programs, "consumer.mjs", sqs_door.url, url, "200", how))
    assert seen["errors"] == []
    assert Counter(one["body"] for one in seen["done"]) == Counter(range(200))
    failing = [body["body"] for body in bodies if body["fails"]]
    assert sorted(seen["failed"]) == failing
    assert sorted(one["body"] for one in seen["done"] if one["times"] == 2) == failing
    assert sqs_door.counts(url) == (0, 0, 0)


def test_the_heartbeats_of_sqs_consumer_keep_a_long_job_from_coming_twice(programs: Path, sqs_door: SqsDoor) -> None:
    url = sqs_door.make_queue(fifo=False)
    # Longer than the visibility timeout that it asks for, 2 s.
    send(sqs_door, url, [{"body": 1, "takes_ms": 4500}], fifo=False)
    seen = json.loads(run(programs, "consumer.mjs", sqs_door.url, url, "1", "single"))
    assert [(one["body"], one["times"]) for one in seen["done"]] == [(1, 1)]
    assert seen["errors"] == []
    assert sqs_door.counts(url) == (0, 0, 0)


def test_sqs_consumer_gets_the_groups_of_a_fifo_queue_in_order(programs: Path, sqs_door: SqsDoor) -> None:
    url = sqs_door.make_queue(fifo=True)
    send(sqs_door, url, [{"body": number} for number in range(100)], fifo=True)
    seen = json.loads(run(programs, "consumer.mjs", sqs_door.url, url, "100", "batch"))
    assert seen["errors"] == []
    for group in range(5):
        assert [one["body"] for one in seen["done"] if one["group"] == f"g{group}"] == list(range(group, 100, 5))
