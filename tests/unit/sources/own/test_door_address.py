from __future__ import annotations

import pytest

from fleet.errors import InvalidConfig
from fleet.sources.open import adapter_of
from fleet.sources.own.address import is_own, name_of
from fleet.sources.own.door.address import DoorAddress, is_of_door, parse_address


@pytest.mark.parametrize("name", ["q", "Orders_1-b", "orders.fifo", "a" * 80])
def test_a_uri_names_a_queue_of_the_door(name: str) -> None:
    address = parse_address(f"fleet://sqs/{name}")
    assert address == DoorAddress(name) == parse_address(address.uri)
    assert address.is_fifo == name.endswith(".fifo")


@pytest.mark.parametrize("name", ["", "a b", "a/b", "a.b", "é", "a" * 81, ".fifo", "a.fifo?x=1", "{a}"])
def test_a_name_that_sqs_would_not_take_is_refused(name: str) -> None:
    assert is_of_door(f"fleet://sqs/{name}")
    with pytest.raises(InvalidConfig, match="name of an SQS queue"):
        adapter_of("fleet://q").parse(f"fleet://sqs/{name}")


def test_a_queue_of_our_own_may_be_called_sqs() -> None:
    assert adapter_of("fleet://q").parse("fleet://sqs") == "sqs"
    assert is_own("fleet://sqs")
    assert not is_of_door("fleet://sqs")


def test_a_queue_of_the_door_is_no_queue_of_our_own() -> None:
    # Whoever writes to a queue of our own past its publisher, as the feed does, must not take it for one.
    assert not is_own("fleet://sqs/orders")
    with pytest.raises(InvalidConfig):
        name_of("FLEET://SQS/orders")


def test_the_scheme_is_read_in_any_case() -> None:
    assert adapter_of("FLEET://SQS/Orders").parse("FLEET://SQS/Orders") == DoorAddress("Orders")
