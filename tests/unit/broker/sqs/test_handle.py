"""Receipt handles: what goes in comes out, and only where it belongs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.broker.sqs import handle
from fleet.broker.sqs.errors import SqsError
from fleet.broker.sqs.handle import Handle

HANDLE = Handle(
    incarnation=5, partition=3, number=1_750_000_000_000_001, count=2, received_ms=1_750_000_000_500, group="g"
)

handles = st.builds(
    Handle,
    incarnation=st.integers(0, 2**63),
    partition=st.integers(0, 31),
    number=st.integers(0, 2**63),
    count=st.integers(0, 2**32 - 1),
    received_ms=st.integers(0, 2**48),
    group=st.text(max_size=128).filter(str.isprintable),
)


def decoded(text: str, queue: str = "q", incarnation: int = 5, partitions: int = 4) -> Handle:
    return handle.decode(text, queue=queue, incarnation=incarnation, partitions=partitions)


@given(handles, st.text(min_size=1, max_size=80))
def test_what_goes_in_comes_out(one: Handle, queue: str) -> None:
    text = handle.encode(one, queue=queue)
    assert len(text) <= 1024
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    assert decoded(text, queue, one.incarnation, 32) == one


@given(handles, st.integers(0, 10_000), st.sampled_from("AZaz09-_+/=!. ü"))
def test_a_character_that_is_changed_is_found(one: Handle, at: int, other: str) -> None:
    text = handle.encode(one, queue="q")
    at %= len(text) - 1  # the last may carry bits that mean nothing
    if text[at] != other:
        with pytest.raises(SqsError):
            decoded(text[:at] + other + text[at + 1 :], "q", one.incarnation, 32)


@given(st.text())
def test_garbage_is_no_handle(text: str) -> None:
    with pytest.raises(SqsError) as refused:
        decoded(text)
    assert refused.value.code == "ReceiptHandleIsInvalid"
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("queue", "incarnation", "partitions"), [("other", 5, 4), ("q", 6, 4), ("q", 5, 3), ("q", 5, 1), ("q", 5, 0)]
)
def test_another_queue_incarnation_or_layout_does_not_take_it(queue: str, incarnation: int, partitions: int) -> None:
    with pytest.raises(SqsError):
        decoded(handle.encode(HANDLE, queue="q"), queue, incarnation, partitions)


def test_another_version_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handle, "VERSION", 2)
    text = handle.encode(HANDLE, queue="q")
    monkeypatch.undo()
    with pytest.raises(SqsError):
        decoded(text)


def test_a_handle_that_was_cut_off_does_not_name_a_shorter_group() -> None:
    text = handle.encode(Handle(5, 0, 1, 1, 1, "a-long-group"), queue="q")
    for end in range(len(text)):
        with pytest.raises(SqsError):
            decoded(text[:end])


def test_a_queue_without_partitions_takes_partition_zero() -> None:
    text = handle.encode(Handle(5, 0, 1, 1, 1), queue="q")
    assert decoded(text, partitions=0) == decoded(text, partitions=1) == Handle(5, 0, 1, 1, 1)
