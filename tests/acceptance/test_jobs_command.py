"""`fleet jobs` and `fleet events`, as their user runs them: no Redis, no fleet, a file or a pipe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.fleet_command import Fleet

JOB = {"targetUrl": "http://127.0.0.1:1/hook", "payload": {"n": 1}}


@pytest.fixture
def fleet(tmp_path: Path, database_url: str) -> Fleet:
    return Fleet(tmp_path, {"FLEET_DATABASE_URL": database_url})


def lines(*jobs: object) -> str:
    return "".join(job if isinstance(job, str) else json.dumps(job) + "\n" for job in jobs)


def test_a_file_is_taken_in_its_order_and_what_is_wrong_is_named_by_line(fleet: Fleet, tmp_path: Path) -> None:
    file = tmp_path / "jobs.ndjson"
    wrong = [JOB | {"mode": "SOMETIMES"}, JOB | {"targetUrl": "nowhere"}, "nope\n"]
    file.write_text(lines(JOB | {"id": "job-2"}, *wrong, "\n", JOB | {"id": "job-10"}, JOB | {"id": "job-1"}))
    done = fleet.run("jobs", "add", "--file", str(file))
    assert (done.code, done.out) == (1, "3 added, 3 refused\n")
    refused = done.err.splitlines()
    assert [line.split(": ")[1] for line in refused] == ["line 2", "line 3", "line 4"]
    assert 'mode: "SOMETIMES" is not one of' in refused[0] and 'targetUrl: "nowhere" is not an http' in refused[1]
    listed = fleet.run("jobs", "list", "--json").document
    assert [job["id"] for job in listed] == ["job-1", "job-10", "job-2"]


def test_adding_the_same_again_changes_nothing_and_is_no_failure(fleet: Fleet) -> None:
    text = lines(JOB | {"idempotencyKey": "k"}, JOB | {"id": "a"}, JOB | {"idempotencyKey": "k"})
    first = fleet.run("jobs", "add", "--file", "-", "--json", input_text=text)
    again = fleet.run("jobs", "add", "--file", "-", input_text=text)
    assert first.document | {"ids": len(first.document["ids"])} == {
        "added": 2, "known": 1, "refused": 0, "ids": 2, "refusals": [],
    }  # fmt: skip
    assert (again.code, again.out) == (0, "0 added, 3 were there already\n")
    assert fleet.run("jobs", "stats", "--json").document["PENDING"] == 2


def test_a_job_for_the_year_9999_a_null_group_and_a_time_gone_by_are_jobs(fleet: Fleet) -> None:
    times = ("9999-12-31T23:59:59Z", "1999-01-01T00:00:00Z", None)
    text = lines(*(JOB | {"scheduledFor": time, "messageGroup": None} for time in times))
    assert fleet.run("jobs", "add", "--file", "-", input_text=text).code == 0
    listed = fleet.run("jobs", "list", "--json").document
    assert [job["scheduledFor"] for job in reversed(listed)] == [
        "9999-12-31T23:59:59.000Z", "1999-01-01T00:00:00.000Z", None,
    ]  # fmt: skip
    assert {job["messageGroup"] for job in listed} == {None}


def test_what_is_wrong_with_a_call_is_one_line_and_2_and_what_fails_is_one_line_and_1(fleet: Fleet) -> None:
    nowhere = {"FLEET_DATABASE_URL": "postgresql://user:hush@127.0.0.1:1/none"}
    for code, arguments, environment in (
        (2, ("jobs", "add"), {}),
        (2, ("jobs", "add", "--file", "not-there"), {}),
        (2, ("jobs", "retry"), {}),
        (2, ("jobs", "cancel", "a", "--group", "g"), {}),
        (2, ("jobs", "list", "--status", "LATE"), {}),
        (2, ("events", "subscribe", "--pattern", "a*", "--target", "http://h/"), {}),
        (2, ("events", "subscribe", "--pattern", "a", "--target", "nowhere"), {}),
        (1, ("jobs", "show", "nobody"), {}),
        (1, ("jobs", "retry", "--group", "g"), {}),
        (1, ("jobs", "retry", "--all"), {}),
        (1, ("jobs", "stats"), nowhere),
        (1, ("jobs", "stats"), {"FLEET_DATABASE_URL": "mysql://user:hush@h/d"}),
    ):
        done = fleet.run(*arguments, **environment)
        assert (done.code, done.err.count("\n")) == (code, 1), (arguments, done.err)
        assert "hush" not in done.err and "Traceback" not in done.err


def test_what_waits_is_cancelled_by_id_or_by_group(fleet: Fleet) -> None:
    text = lines(*(JOB | {"id": f"{group}-{n}", "messageGroup": group} for group in "gh" for n in (1, 2)))
    fleet.run("jobs", "add", "--file", "-", input_text=text)
    assert fleet.run("jobs", "cancel", "g-1").out == "1 job cancelled.\n"
    again = fleet.run("jobs", "cancel", "g-1", "g-2")
    assert (again.code, again.out) == (1, "1 job cancelled.\n")
    assert again.err == "unchanged: job g-1 is under way, finished, or unknown\n"
    assert fleet.run("jobs", "cancel", "--group", "h").out == "2 jobs cancelled.\n"
    assert fleet.run("jobs", "stats", "--json").document == {
        "PENDING": 0, "QUEUED": 0, "IN_PROGRESS": 0, "COMPLETED": 0, "ERROR": 0, "EXPIRED": 0, "CANCELLED": 4,
    }  # fmt: skip


def test_events_are_added_once_and_listed(fleet: Fleet) -> None:
    text = lines({"id": "e", "type": "order:created", "group": "g", "payload": [1]}, {"type": "a::b", "payload": 1})
    done = fleet.run("events", "add", "--file", "-", input_text=text)
    assert (done.code, done.out) == (1, "1 added, 1 refused\n")
    assert 'line 2: type: "a::b" must be words separated by colons' in done.err
    assert (
        fleet.run("events", "add", "--file", "-", input_text=text).out == "0 added, 1 were there already, 1 refused\n"
    )
    (event,) = fleet.run("events", "list", "--json").document
    assert (event["id"], event["type"], event["group"], event["payload"]) == ("e", "order:created", "g", [1])


def test_a_subscription_is_made_once_changed_by_nobody_and_removed(fleet: Fleet) -> None:
    command = ["events", "subscribe", "--pattern", "order:*", "--target", "http://127.0.0.1:1/", "--name", "orders"]
    assert fleet.run(*command).out == "Subscribed as orders.\n"
    assert fleet.run(*command).out == "Already subscribed as orders.\n"
    other = fleet.run(*command, "--mode", "BLOCK_ON_ERROR")
    assert (other.code, other.err.count("\n")) == (1, 1) and "another subscription orders" in other.err
    (one,) = fleet.run("events", "list", "--subscriptions", "--json").document
    assert (one["name"], one["pattern"], one["mode"], one["poolCode"]) == (
        "orders", "order:*", "NEXT_ON_ERROR", "DEFAULT-POOL",
    )  # fmt: skip
    assert fleet.run("events", "unsubscribe", "orders").code == 0
    assert fleet.run("events", "unsubscribe", "orders").code == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("jobs", "list"), "There are no jobs."),
        (("jobs", "list", "--status", "ERROR"), "No job matches."),
        (("events", "list"), "There are no events."),
        (("events", "list", "--group", "g"), "No event matches."),
        (("events", "list", "--subscriptions"), "There are no subscriptions."),
    ],
)
def test_a_list_of_nothing_says_whether_there_is_nothing_or_nothing_matches(
    tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    fleet = Fleet(tmp_path, {"FLEET_DATABASE_URL": f"sqlite:///{tmp_path}/jobs.db"})
    listed = fleet.run(*arguments)
    assert (listed.code, listed.out, listed.err) == (0, f"{says}\n", "")
    assert fleet.run(*arguments, "--json").document == []
