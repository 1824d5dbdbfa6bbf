"""Ack ids."""

from __future__ import annotations

import base64
import binascii

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.broker.acks import Showing, decode, encode
from fleet.broker.errors import BrokerError, InvalidAckId, InvalidArgument

SHOWING = Showing("order-processor", 1_800_000_000_000_000, 1_800_000_000_000_123, 1, "user-123")
_MICROSECONDS = st.integers(0, 2**63 - 1)
_SHOWINGS = st.builds(Showing, st.text(max_size=40), _MICROSECONDS, _MICROSECONDS, st.integers(1, 2**31), st.text())


@given(_SHOWINGS)
def test_what_is_decoded_is_what_was_encoded(showing: Showing) -> None:
    assert decode(encode(showing)) == showing


@given(_SHOWINGS, _SHOWINGS)
def test_two_showings_have_one_ack_id_only_if_they_are_one(one: Showing, other: Showing) -> None:
    assert (encode(one) == encode(other)) == (one == other)


def test_a_later_showing_of_a_message_has_another_ack_id() -> None:
    assert encode(SHOWING) != encode(Showing("order-processor", SHOWING.incarnation, SHOWING.number, 2, "user-123"))


@given(_SHOWINGS)
def test_an_ack_id_needs_no_escaping_in_a_url(showing: Showing) -> None:
    assert set(encode(showing)) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


def test_the_longest_ordering_key_fits() -> None:
    showing = Showing("s" * 255, 2**63 - 1, 2**63 - 1, 2**31, "é" * 512)
    assert decode(encode(showing)) == showing


@given(st.data())
def test_an_ack_id_with_any_one_character_changed_lost_or_added_is_invalid(data: st.DataObject) -> None:
    written = encode(SHOWING)
    at = data.draw(st.integers(0, len(written) - 1))
    other = data.draw(st.characters().filter(lambda character: character != written[at]))
    for wrong in (written[:at] + other + written[at + 1 :], written[:at] + written[at + 1 :], written + other):
        with pytest.raises(InvalidAckId):
            decode(wrong)


@given(st.text())
def test_text_that_is_no_ack_id_is_invalid(text: str) -> None:
    with pytest.raises(InvalidAckId):
        decode(text)


def test_an_ack_id_of_another_version_is_invalid() -> None:
    raw = base64.urlsafe_b64decode(encode(SHOWING) + "=")
    told = b"\x02" + raw[1:-4]
    with pytest.raises(InvalidAckId):
        decode(base64.urlsafe_b64encode(told + binascii.crc32(told).to_bytes(4, "big")).decode().rstrip("="))


@pytest.mark.parametrize("junk", [b"", b"\x01", b"\x90", b"\x95\x01\x01\x01\x01\x01", b"\xc1"])
def test_an_ack_id_whose_sum_is_right_and_whose_content_is_not_is_invalid(junk: bytes) -> None:
    told = b"\x01" + junk
    with pytest.raises(InvalidAckId):
        decode(base64.urlsafe_b64encode(told + binascii.crc32(told).to_bytes(4, "big")).decode().rstrip("="))


@pytest.mark.parametrize(
    ("ack_id", "text"),
    [
        ("abc123", "Invalid ack ID: abc123"),
        ("", "Invalid ack ID: "),
        (None, "Invalid ack ID: None"),
        (b"abc", "Invalid ack ID: b'abc'"),
        ("\ud800", "Invalid ack ID: \ud800"),
        ("x" * 5000, f"Invalid ack ID: {'x' * 100}…"),
    ],
)
def test_the_error_is_that_of_the_seed(ack_id: object, text: str) -> None:
    with pytest.raises(BrokerError) as refused:
        decode(ack_id)
    assert isinstance(refused.value, InvalidArgument)
    assert (refused.value.code, refused.value.message) == (3, text)
