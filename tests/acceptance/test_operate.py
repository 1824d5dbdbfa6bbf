"""The operator's commands on a fleet of real processes: what they change, what they say, what survives a crash."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fleet.letter import skipped
from fleet.operate.journal import Start, read
from fleet.sources.sqlite import look as sqlite_look
from fleet.sources.sqlite.address import parse_address
from fleet.state import groups
from fleet.state.by_hand import PoolByHand
from fleet.state.connect import connected
from fleet.state.keys import PoolKeys, QueueKeys
from tests.servers import forked
from tests.stage import POOL, QUEUE, Stage, a_stage
from tests.waiting import until

HOLD = {"onFailure": "hold"}


def command(stage: Stage, *arguments: str, code: int = 0, columns: int = 80) -> str:
    """What it prints; every line of a table and of a sentence fits the terminal."""
    given = ["fleet", *arguments, "--redis", stage.redis_server.url]
    environment = {"PATH": "", "COLUMNS": str(columns)}
    done = forked.run(given, environment, stage.directory, timeout_s=60)
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    shown = arguments[0] in ("groups", "explain") or arguments[:2] == ("dead", "list")
    if shown and "--json" not in arguments:
        assert max(map(len, done.stdout.splitlines()), default=0) <= columns, done.stdout
    return done.stdout + done.stderr


def document(stage: Stage, *arguments: str, code: int = 0) -> Any:
    return json.loads(command(stage, *arguments, "--json", code=code))


def explained(stage: Stage, subject: str, state: str) -> Any:
    seen: list[Any] = []

    def there() -> bool:
        asked = ["fleet", "explain", subject, "--json", "--redis", stage.redis_server.url]
        done = forked.run(asked, os.environ, stage.directory, timeout_s=60)
        assert done.stdout, done.stderr
        seen[:] = [json.loads(done.stdout)]
        return bool(seen[0]["state"] == state)

    until(there, 30, lambda: f"{seen}\n{stage.describe()}", every_s=0.2)
    return seen[0]


def run(stage: Stage, messages: int, groups: int, *, latency_ms: int = 2) -> None:
    stage.start_endpoint(latency_ms=latency_ms)
    stage.configure()
    stage.send_messages(messages, groups)
    stage.start("coordinator")
    stage.start("worker")


def requests(stage: Stage) -> list[str]:
    """Message ids, a request each."""
    return [record.id for record in read(stage.endpoint_journal) if isinstance(record, Start)]


def starts(stage: Stage) -> Counter[str]:
    return Counter(requests(stage))


@contextmanager
def unwilling() -> Iterator[tuple[str, list[str]]]:
    """An endpoint that takes no message and is well: it answers 200, so no breaker opens. Its URL, and who came."""
    came: list[str] = []

    class No(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            came.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messageId"])
            answer = b'{"ack":false,"message":"no"}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (its name there)
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), No)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", came
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_paused_pool_delivers_nothing_until_it_is_resumed(tmp_path: Path) -> None:
    with a_stage(tmp_path) as stage:
        stage.start_endpoint()
        stage.configure()
        assert "paused" in command(stage, "pool", "pause", POOL)
        stage.send_messages(20, 4)
        stage.start("coordinator")
        stage.start("worker")
        found = explained(stage, "group-0", "PAUSED")
        assert found["waitsFor"] == f"`fleet pool resume {POOL}`"
        assert [row["state"] for row in document(stage, "groups", POOL)] == ["paused"] * 4
        assert "paused" in command(stage, "groups", POOL)
        assert starts(stage).total() == 0
        assert "delivers again" in command(stage, "pool", "resume", POOL)
        stage.wait_drained(30)
        assert stage.verdict().ok
        assert "neither" in command(stage, "pool", "resume", POOL)


def test_limits_set_by_hand_outlive_a_second_syncer_and_not_a_new_configuration(tmp_path: Path) -> None:
    with a_stage(tmp_path, concurrency=4) as stage:
        stage.configure()
        keys = PoolKeys(POOL)
        command(stage, "pool", "set", POOL, "--concurrency", "7", "--rate-limit-per-minute", "90")
        with stage.client() as client:
            assert client.hmget(keys.settings, ["concurrency", "rate"]) == ["7", "90"]
            syncer = stage.start("syncer", "--config", str(tmp_path / "router.json"))
            until(lambda: "we stand by" in syncer.text(), 15, syncer.text)
            checked = client.hget("{fleet}:config", "checked_ms")
            until(lambda: client.hget("{fleet}:config", "checked_ms") != checked, 15, syncer.text)
            assert client.hmget(keys.settings, ["concurrency", "rate"]) == ["7", "90"]
            config = json.loads((tmp_path / "router.json").read_text())
            config["processingPools"][0]["parkAfter"] = 3
            (tmp_path / "router.json").write_text(json.dumps(config))
            until(lambda: client.hmget(keys.settings, ["concurrency", "rate"]) == ["4", None], 15, syncer.text)


def test_a_lowered_concurrency_starts_nothing_above_it_and_a_raised_one_is_used_at_once(tmp_path: Path) -> None:
    with a_stage(tmp_path, concurrency=8) as stage:
        run(stage, 200, 40, latency_ms=100)
        keys = PoolKeys(POOL)
        with stage.client() as client:
            until(lambda: client.zcard(keys.leases) == 8, 20, stage.describe)
            command(stage, "pool", "set", POOL, "--concurrency", "2")
            until(lambda: client.zcard(keys.leases) <= 2, 10, stage.describe)
            for _ in range(50):
                assert client.zcard(keys.leases) <= 2
            command(stage, "pool", "set", POOL, "--concurrency", "8")
            until(lambda: client.zcard(keys.leases) == 8, 2, stage.describe)
        stage.wait_drained(60)
        assert stage.verdict().ok


def test_a_group_that_waits_is_explained_released_skipped_and_replayed(tmp_path: Path) -> None:
    options = {"pool_options": HOLD, "body_options": {"authToken": "sesame"}}
    with unwilling() as (url, came), a_stage(tmp_path, **options) as stage:
        stage.endpoint_url = url
        stage.configure()
        stage.send_messages(3, 1)
        stage.start("coordinator")
        stage.start("worker")
        waits = explained(stage, "message-0000000", "WAITING")
        assert waits["until"] is not None
        behind = explained(stage, "message-0000002", "QUEUED")
        assert "message-0000000" in behind["waitsFor"]
        assert behind["until"] == waits["until"]
        command(stage, "explain", "message-0000002")
        (row,) = document(stage, "groups", POOL)
        assert (row["state"], row["queuedRegular"], row["headMessageId"]) == ("waiting", 3, "message-0000000")
        assert "tries" in command(stage, "groups", POOL, columns=120)

        before = came.count("message-0000000")
        assert "is tried again now" in command(stage, "group", "release", POOL, "group-0")
        until(lambda: came.count("message-0000000") > before, 10, stage.describe)
        explained(stage, "group-0", "WAITING")

        assert "message-0000000" in command(stage, "group", "skip", POOL, "group-0")
        assert explained(stage, "message-0000000", "DEAD")["details"]
        until(lambda: "message-0000001" in came, 10, stage.describe)
        assert "message-0000000" in command(stage, "dead", "list")
        (letter,) = document(stage, "dead", "list", "--kind", "skipped")
        assert (letter["messageId"], letter["authToken"]) == ("message-0000000", "kept")
        assert "sesame" not in command(stage, "dead", "show", "message-0000000")

        explained(stage, "group-0", "WAITING")
        assert "1 message sent again" in command(stage, "group", "replay", POOL, "group-0")
        assert document(stage, "dead", "list") == []
        found = explained(stage, "message-0000000", "BEHIND_AT_SOURCE")
        assert "message-0000001" in found["waitsFor"], "it stands behind the others now"
        at_source = sqlite_look.find_message(parse_address(stage.queue_uri), "message-0000000")
        assert at_source is not None
        assert at_source.message is not None
        assert at_source.message.auth_token == "sesame", "what is not shown is sent again"


def test_what_an_operator_skipped_before_the_command_died_is_acked_by_the_leader(tmp_path: Path) -> None:
    with a_stage(tmp_path, path="/fail", pool_options=HOLD) as stage:
        run(stage, 1, 1)
        explained(stage, "group-0", "WAITING")

        async def skip_and_die() -> None:
            async with connected(stage.redis_server.url) as client:
                view = await groups.group(client, POOL, "group-0")
                assert view is not None
                assert (await PoolByHand(client, POOL).skip(view.head, skipped(view.head, pool=POOL))).tag == "skipped"

        asyncio.run(skip_and_die())
        # A death makes the leader look at once; else it does so every thirty rounds.
        stage.workers()[0].kill()
        stage.wait_drained(30)
        with stage.client() as client:
            assert client.llen(QueueKeys(QUEUE).dead) == 1
        assert stage.leftover_keys() == []


def test_a_message_under_way_is_not_skipped_and_force_does_nothing_once_it_is_delivered(tmp_path: Path) -> None:
    with a_stage(tmp_path) as stage:
        run(stage, 2, 1, latency_ms=3_000)
        explained(stage, "message-0000000", "PROCESSING")
        assert "a worker delivers message" in command(stage, "group", "skip", POOL, "group-0", code=1)
        began = time.monotonic()
        refused = command(stage, "group", "skip", POOL, "group-0", "--force", code=1)
        assert "nothing is done" in refused or "no message of group" in refused
        assert time.monotonic() - began < 20
        stage.wait_drained(30)
        assert stage.verdict().ok


def test_parked_letters_are_sent_again_in_their_order_and_malformed_ones_say_why_not(tmp_path: Path) -> None:
    options = {"onFailure": "park", "parkAfter": 1}
    with unwilling() as (url, came), a_stage(tmp_path, pool_options=options) as stage:
        stage.endpoint_url = url
        stage.configure()
        stage.send_messages(6, 2)
        command(stage, "send", stage.queue_uri, "--unchecked", "--body", '{"id":"x","authToken":"sesame"}')
        stage.start("coordinator")
        stage.start("worker")
        until(lambda: len(document(stage, "dead", "list")) == 7, 60, lambda: str(came), every_s=0.2)
        listed = document(stage, "dead", "list")
        assert Counter(letter["kind"] for letter in listed) == {"parked": 6, "malformed": 1}
        assert "sesame" not in json.dumps(listed) + command(stage, "dead", "list")
        before = len(came)
        said = command(stage, "dead", "replay", "--queue", QUEUE, code=1)
        assert "6 messages sent again" in said
        assert "malformed" in said
        until(lambda: len(set(came[before:])) == 6, 60, lambda: str(came))
        again = list(dict.fromkeys(came[before:]))
        assert [one for one in again if int(one[-1]) % 2 == 0] == [f"message-000000{i}" for i in (0, 2, 4)]
        until(lambda: len(document(stage, "dead", "list", "--kind", "parked")) == 6, 30, lambda: str(came))
        assert "add --yes" in command(stage, "dead", "purge", code=2)
        assert "7 dead letters are gone" in command(stage, "dead", "purge", "--yes")
        assert document(stage, "dead", "list") == []


def test_a_drain_by_hand_leaves_new_messages_in_their_queue(tmp_path: Path) -> None:
    with a_stage(tmp_path) as stage:
        run(stage, 20, 4)
        stage.wait_drained(30)
        assert "still names it" in " ".join(command(stage, "pool", "drain", POOL).split())
        stage.send_messages(4, 2)
        seen = [""]

        def held_off() -> bool:
            seen[0] = document(stage, "explain", "group-0")["state"]
            # Between two polls it is given back for a second.
            return seen[0] in ("DRAINING", "DELAYED")

        until(held_off, 15, lambda: seen[0], every_s=0.1)
        assert starts(stage).total() == 20
        assert "takes messages" in command(stage, "pool", "resume", POOL)
        stage.wait_drained(30)
        assert stage.verdict().ok


def test_the_configuration_in_force_is_shown_without_its_secrets_and_read_again_on_demand(tmp_path: Path) -> None:
    with a_stage(tmp_path, pool_options={"secret": "sesame"}) as stage:
        assert "no configuration" in command(stage, "config", "show", code=1)
        assert "no syncer" in command(stage, "config", "reload", code=1)
        stage.configure()
        shown = document(stage, "config", "show")
        assert set(shown) == {"revision", "checkedAt", "config"}
        assert "sesame" not in json.dumps(shown)
        assert POOL in [pool["code"] for pool in shown["config"]["processingPools"]]
        assert f"Revision {shown['revision']}" in command(stage, "config", "show")
        assert re.fullmatch(r"syncer-\S+ has read the configuration anew\.\n", command(stage, "config", "reload"))
        stage.config.write_text('{"processingPools":[{"code":"A","concurrency":-1}]}')
        said = command(stage, "config", "reload", code=1)
        assert said.startswith(
            f"fleet: the last good configuration stays: {stage.config}: processingPools[0].concurrency"
        )
        assert document(stage, "config", "show")["revision"] == shown["revision"]


def test_a_wrong_call_is_one_line(tmp_path: Path) -> None:
    with a_stage(tmp_path) as stage:
        for arguments, code in (
            (["pool", "set", "X"], 2),
            (["pool", "set", "X", "--rate-limit-per-minute", "0"], 2),
            (["pool", "set", "X", "--concurrency", "3"], 1),
            (["pool", "pause", "X"], 1),
            (["pool", "resume", "X"], 1),
            (["pool", "drain", "X"], 1),
            (["groups", "X"], 1),
            (["group", "release", "X", "g"], 1),
            (["group", "skip", "X", "g"], 1),
            (["group", "replay", "X", "g"], 1),
            (["dead", "show", "m"], 1),
            (["dead", "replay"], 2),
        ):
            said = command(stage, *arguments, code=code)
            assert said.count("\n") == 1, said
        assert explained(stage, "m", "UNKNOWN")["waitsFor"] == "nothing"
