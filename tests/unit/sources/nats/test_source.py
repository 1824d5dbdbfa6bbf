"""What is read of a JetStream queue's URI, of a delivery, and of a message's headers. No server."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fleet.errors import InvalidConfig
from fleet.sources.nats.address import NatsAddress, is_subject, is_token, parse_address
from fleet.sources.nats.delivery import Floors, Incarnation, Marks, group_of, like, read_marks, read_time_ns
from fleet.sources.open import open_publisher, open_source

SHORT = "$JS.ACK.ORDERS.fleet.2.17.40.1700000000000000000.3"
LONG = "$JS.ACK.hub.ACCHASH.ORDERS.fleet.2.17.40.1700000000000000000.3.rAnD"


def test_a_uri_names_a_server_a_stream_and_a_consumer() -> None:
    assert parse_address("nats://host/ORDERS/fleet") == NatsAddress(
        host="host", port=4222, stream="ORDERS", consumer="fleet"
    )
    whole = parse_address("nats://u%40x:p%2Fw@[::1]:4333/O%20R".replace("%20", "-") + "/c?subject=a.*.b&groupToken=2")
    assert (whole.server, whole.stream, whole.consumer) == ("[::1]:4333", "O-R", "c")
    assert (whole.user, whole.password, whole.token) == ("u@x", "p/w", "")
    assert (whole.subject, whole.group_token) == ("a.*.b", 2)


def test_a_user_without_a_password_is_a_token() -> None:
    address = parse_address("nats://abc@host/S/C")
    assert (address.user, address.password, address.token) == ("", "", "abc")


@pytest.mark.parametrize(
    "uri",
    [
        "nats://u:s3cret@/S/C",
        "nats://u:s3cret@host",
        "nats://u:s3cret@host/S",
        "nats://u:s3cret@host/S/C/x",
        "nats://u:s3cret@host//C",
        "nats://u:s3cret@host/S.x/C",
        "nats://u:s3cret@host/S/C%20x",
        "nats://u:s3cret@host/S/%3E",
        "nats://u:s3cret@host/S/C%0d%0aPUB",
        "nats://u:s3cret@host:port/S/C",
        "nats://u:s3cret@host:99999/S/C",
        "nats://u:s3cret@[::1/S/C",
        "nats://u:s3cret@host/S/C?subject=a..b",
        "nats://u:s3cret@host/S/C?subject=a%0d%0ab",
        "nats://u:s3cret@host/S/C?subject=a&subject=b",
        "nats://u:s3cret@host/S/C?groupToken=0",
        "nats://u:s3cret@host/S/C?groupToken=65",
        "nats://u:s3cret@host/S/C?groupToken=%D9%A3",
        "nats://u:s3cret@host/S/C?groupToken=" + "9" * 5000,
        "nats://u:s3cret@host/S/C?s3cret=x",
        "nats://u:s3cret@host/S/C#s3cret",
    ],
)
def test_a_uri_that_cannot_be_used_is_one_line_that_shows_no_secret(uri: str) -> None:
    for attempt in (lambda: open_source("q", uri, 1000), lambda: open_publisher(uri)):
        with pytest.raises(InvalidConfig, match="a nats:// URI cannot be used: ") as caught:
            attempt()
        assert "s3cret" not in str(caught.value)
        assert "\n" not in str(caught.value)


def test_what_is_shown_of_an_address_has_no_secret() -> None:
    for uri in ("nats://u:s3cret@host/S/C", "nats://s3cret@host/S/C"):
        address = parse_address(uri)
        assert "s3cret" not in f"{address!r} {address} {address.server} {open_source('q', uri, 1000)!r}"


def test_a_new_owner_waits_for_an_ack_wait_and_more_as_no_group_is_held() -> None:
    source = open_source("orders", "NATS://host/S/C", 1234)
    assert (source.visibility_ms, source.crash_wait_ms, source.holds_groups) == (1234, 1234 + 2900, False)


def test_the_library_is_loaded_only_for_a_queue_that_needs_it() -> None:
    code = """
import sys
from fleet.sources.open import open_source
open_source("q", "sqlite:///q.db?queue=a", 1)
assert "nats" not in sys.modules
open_source("q", "nats://host/S/C", 1)
assert sys.modules["nats"].__file__ != sys.modules["fleet.sources.nats.source"].__file__
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize(
    ("subject", "is_one"),
    [
        ("a", True),
        ("a.b", True),
        ("a.*", True),
        ("a.>", True),
        (">.a", False),
        ("a*", False),
        ("", False),
        ("a b", False),
    ],
)
def test_a_subject_is_told_from_what_is_none(subject: str, is_one: bool) -> None:
    assert is_subject(subject) == is_one


def test_a_token_of_a_subject_has_no_dot_and_no_wildcard() -> None:
    assert [text for text in ("order-1", "größe", "a.b", "*", ">", "", "a b", "a\r") if is_token(text)] == [
        "order-1",
        "größe",
    ]


@pytest.mark.parametrize("subject", [SHORT, LONG])
def test_both_forms_of_an_ack_subject_are_read(subject: str) -> None:
    assert read_marks(subject) == Marks("ORDERS", "fleet", 2, 17, 40)
    other = read_marks(like(subject, stream_seq=18, consumer_seq=41))
    assert other == Marks("ORDERS", "fleet", 2, 18, 41)


@pytest.mark.parametrize(
    "subject", ["", "x", "$JS.ACK", "$JS.ACK.a.b.1.2.3.4", SHORT.replace("17", "x"), SHORT.replace("17", "\u0663")]
)
def test_what_is_no_ack_subject_is_not_taken_for_one(subject: str) -> None:
    assert read_marks(subject) is None


def test_ids_and_handles_belong_to_one_incarnation_of_the_stream() -> None:
    first, second = Incarnation(1), Incarnation(2)
    assert first.broker_id(7) != second.broker_id(7)
    assert first.subject(first.handle(SHORT)) == SHORT
    assert second.subject(first.handle(SHORT)) is None
    assert first.subject(SHORT) is None


@pytest.mark.parametrize(
    ("headers", "group_token", "group"),
    [
        ({"Nats-Msg-Group": "one", "Fleet-Group": "two"}, 2, "one"),
        ({"Fleet-Group": "two"}, 2, "two"),
        ({"Nats-Msg-Group": "", "Fleet-Group": "two"}, 0, "two"),
        ({"Other": "x"}, 2, "token"),
        (None, 2, "token"),
        (None, 9, None),
        (None, 0, None),
    ],
)
def test_a_group_is_the_first_that_says_one(
    headers: dict[str, str] | None, group_token: int, group: str | None
) -> None:
    assert group_of(headers, "in.token.x", group_token) == group


def test_times_are_read_to_the_nanosecond() -> None:
    assert read_time_ns("1970-01-01T00:00:01.000000001Z") == 1_000_000_001
    assert read_time_ns("1970-01-01T00:00:01.5Z") == 1_500_000_000
    assert read_time_ns("1970-01-01T00:00:01Z") == 1_000_000_000
    assert read_time_ns("1970-01-01T02:00:01.25+02:00") == 1_250_000_000
    for text in ("", "now", "1970-01-01T00:00:01"):
        with pytest.raises(ValueError, match="no time"):
            read_time_ns(text)


def test_an_older_delivery_is_void_once_a_newer_one_was_shown_acked_or_given_back() -> None:
    floors, old, new = Floors(), Marks("S", "C", 1, 5, 10), Marks("S", "C", 2, 5, 20)
    assert not floors.is_void(old)  # another connection's
    floors.shown(old)
    assert not floors.is_void(old)
    floors.shown(new)
    assert (floors.is_void(old), floors.is_void(new)) == (True, False)
    floors.shown_again(new)
    assert (floors.is_void(new), floors.is_acked(new)) == (True, False)
    floors.acked(new)
    assert (floors.is_void(new), floors.is_acked(new)) == (True, True)


def test_what_is_known_of_deliveries_is_bounded() -> None:
    floors = Floors(keep=2)
    marks = [Marks("S", "C", 1, seq, seq) for seq in (1, 2, 3)]
    for one in marks:
        floors.acked(one)
    assert [floors.is_acked(one) for one in marks] == [False, True, True]
