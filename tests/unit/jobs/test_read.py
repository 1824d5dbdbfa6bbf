"""What a line of a file may hold, and how it is refused: in one line, by its field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fleet.errors import InvalidJob
from fleet.jobs.read import (
    MAX_EVENT_GROUP_CHARACTERS,
    MAX_LINE_BYTES,
    MAX_PAYLOAD_BYTES,
    MAX_SUBSCRIPTION_CHARACTERS,
    read_event,
    read_job,
    read_lines,
    subscription,
)
from fleet.message import MAX_NAME_CHARACTERS

GOOD = {"targetUrl": "https://example.com/hook", "payload": {"n": 1}}


def line(**given: Any) -> bytes:
    return json.dumps(GOOD | given).encode()


def refusal(body: bytes) -> str:
    with pytest.raises(InvalidJob) as refused:
        read_job(body)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_what_is_not_said_has_the_defaults_of_the_contract() -> None:
    job = read_job(line())
    assert (job.id, job.mode, job.pool, job.msg_group) == ("", "NEXT_ON_ERROR", "DEFAULT-POOL", None)
    assert (job.sequence, job.timeout_seconds, job.max_retries) == (99, 30, 3)
    assert (job.scheduled_ms, job.expires_ms, job.idempotency_key) == (None, None, None)


def test_every_field_is_taken() -> None:
    job = read_job(
        line(
            id="a", mode="BLOCK_ON_ERROR", poolCode="P", messageGroup="g", sequence=-5, maxRetries=0,
            timeoutSeconds=900, idempotencyKey="k", source="s", kind="k", code="c", subject="t", eventId="e",
            expiresAt=5, scheduledFor="2030-01-31T12:00:00.250+02:00",
        )
    )  # fmt: skip
    assert (job.id, job.mode, job.pool, job.msg_group, job.sequence) == ("a", "BLOCK_ON_ERROR", "P", "g", -5)
    assert (job.max_retries, job.timeout_seconds, job.idempotency_key) == (0, 900, "k")
    assert (job.source, job.kind, job.code, job.subject, job.event_id) == ("s", "k", "c", "t", "e")
    assert (job.scheduled_ms, job.expires_ms) == (1_896_084_000_250, 5)


@pytest.mark.parametrize("none", [{"messageGroup": None}, {"messageGroup": ""}, {"id": None}, {"poolCode": None}])
def test_null_is_as_good_as_nothing(none: dict[str, None]) -> None:
    assert read_job(line(**none)) == read_job(line())


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1969-07-20T20:17:40Z", -14_182_940_000),
        ("2000-01-01", 946_684_800_000),
        ("2000-01-01T00:00:00", 946_684_800_000),
        ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
        ("9999-12-31T23:59:59+01:00", 253_402_297_199_000),
        (0, 0),
    ],
)
def test_any_time_from_the_past_to_the_year_9999_is_a_time(text: str | int, ms: int) -> None:
    assert read_job(line(scheduledFor=text)).scheduled_ms == ms


@pytest.mark.parametrize(
    "payload", ["1.50", "18446744073709551617", '{"b":1,"a":"\\u0000\\ud83d\\ude00"}', '"ü😀"', "null", "[ ]"]
)
def test_a_payload_stays_as_it_was_written(payload: str) -> None:
    assert read_job(b'{"targetUrl":"http://h","payload":%b}' % payload.encode()).payload == payload


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"mode": "SOMETIMES"}, 'mode: "SOMETIMES" is not one of IMMEDIATE, NEXT_ON_ERROR, BLOCK_ON_ERROR'),
        ({"targetUrl": "ftp://example.com"}, 'targetUrl: "ftp://example.com" is not an http or https URL'),
        ({"targetUrl": "example.com/hook"}, "not an http or https URL"),
        ({"targetUrl": ""}, "not an http or https URL"),
        ({"targetUrl": "http://"}, "names no host"),
        ({"targetUrl": "http://h:99999/"}, "names no host"),
        ({"targetUrl": "http://h/a b"}, "not an http or https URL"),
        ({"targetUrl": "http://h/\r\nX: y"}, "not an http or https URL"),
        ({"targetUrl": "http://h/" + "x" * 5000}, "the limit is 4096"),
        ({"targetUrl": 5}, "Expected `str`, got `int` - at `$.targetUrl`"),
        ({"scheduledFor": "tomorrow"}, 'scheduledFor: "tomorrow" is not a time like'),
        ({"scheduledFor": "10000-01-01T00:00:00Z"}, "is not a time like"),
        ({"scheduledFor": 253_402_300_800_000}, "scheduledFor: 253402300800000 is not within"),
        ({"scheduledFor": True}, "$.scheduledFor"),
        ({"sequence": 2**31}, "sequence: 2147483648 is not within"),
        ({"sequence": 1.5}, "$.sequence"),
        ({"sequence": True}, "$.sequence"),
        ({"timeoutSeconds": 0}, "timeoutSeconds: 0 is not within 1 and 900"),
        ({"maxRetries": -1}, "maxRetries: -1 is not within 0 and 100"),
        ({"id": "x" * 129}, "id: 129 characters, the limit is 128"),
        ({"messageGroup": "a\nb"}, "messageGroup: holds an unprintable character"),
        ({"idempotencyKey": "k" * 256}, "idempotencyKey: 256 characters"),
        ({"schedulFor": 1}, '"schedulFor": unknown field, did you mean scheduledFor?'),
    ],
)
def test_a_field_that_cannot_be_is_named_with_what_is_wrong(given: dict[str, Any], words: str) -> None:
    assert words in refusal(line(**given))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "not JSON"),
        (b"nope", "not JSON"),
        (b"[]", "Expected `object`, got `array`"),
        (b"{}", "missing required field `targetUrl`"),
        (b'{"targetUrl":"http://h"}', "missing required field `payload`"),
        (b'{"targetUrl":"http://h","payload":"\xff"}', "payload: not JSON"),
        (b'{"targetUrl":"http://h","payload":"a\x00b"}', "not JSON"),
        (b'{"targetUrl":"http://h","payload":' + b"[" * 100_000, "not JSON"),
        (b'{"targetUrl":"http://h","payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "not JSON"),
    ],
)
def test_what_is_no_job_at_all_is_refused(body: bytes, words: str) -> None:
    assert words in refusal(body)


def test_a_payload_of_a_mebibyte_is_taken_and_one_byte_more_is_refused_with_the_limit() -> None:
    def of(size: int) -> bytes:
        return b'{"targetUrl":"http://h","payload":"%b"}' % (b"x" * (size - 2))

    assert len(read_job(of(MAX_PAYLOAD_BYTES)).payload) == MAX_PAYLOAD_BYTES
    assert refusal(of(MAX_PAYLOAD_BYTES + 1)) == "payload: 1048577 bytes, the limit is 1048576"
    assert "the limit of a payload is 1048576" in refusal(of(MAX_LINE_BYTES))


def test_lines_are_numbered_as_in_the_file_and_each_stands_for_itself() -> None:
    found = list(read_lines([line(), b"\n", b"nope\n", b"  \n", line(id="b")], read_job))
    assert [(one.number, one.content is None) for one in found] == [(1, False), (3, True), (5, False)]
    assert found[1].refusal.startswith("not JSON")


# Events --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", ["a", "order:created", "a:b:c:d", "order-item.v2:x_y"])
def test_a_type_is_words_separated_by_colons(type_: str) -> None:
    assert read_event(json.dumps({"type": type_, "payload": 1}).encode()).type == type_


@pytest.mark.parametrize("type_", ["", ":", "a:", ":a", "a::b", "a:*", "a b", "a\n"])
def test_what_is_no_type_is_refused(type_: str) -> None:
    with pytest.raises(InvalidJob, match=r"^type: "):
        read_event(json.dumps({"type": type_, "payload": 1}).encode())


@pytest.mark.parametrize("pattern", ["*", "a:*", "*:*:*", "a:b:*:d"])
def test_a_star_stands_for_a_whole_segment(pattern: str) -> None:
    assert subscription(pattern=pattern, target="http://h/").pattern == pattern


@pytest.mark.parametrize("pattern", ["", "a*", "a:**", "a::*", "*:", " "])
def test_any_other_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidJob, match=r"^pattern: "):
        subscription(pattern=pattern, target="http://h/")


def test_the_group_of_an_events_job_is_never_longer_than_a_messages() -> None:
    group, name = "g" * MAX_EVENT_GROUP_CHARACTERS, "s" * MAX_SUBSCRIPTION_CHARACTERS
    event = read_event(json.dumps({"type": "a", "payload": 1, "group": group}).encode())
    made = subscription(pattern="a", target="http://h/", name=name)
    assert len(f"{made.name}:{event.msg_group}") == MAX_NAME_CHARACTERS
    with pytest.raises(InvalidJob, match="group: 80 characters"):
        read_event(json.dumps({"type": "a", "payload": 1, "group": group + "g"}).encode())
    with pytest.raises(InvalidJob, match="name: 49 characters"):
        subscription(pattern="a", target="http://h/", name=name + "s")


def test_a_subscription_without_a_name_has_the_same_one_each_time_and_another_for_another_target() -> None:
    long = "x" * 100 + ":*"
    one, two = (subscription(pattern=long, target=f"http://h/{path}") for path in "ab")
    assert one == subscription(pattern=long, target="http://h/a")
    assert one.name != two.name and len(one.name) <= MAX_SUBSCRIPTION_CHARACTERS
