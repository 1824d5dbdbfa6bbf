"""Throttling of a queue over the door (seed 003, 3.C): who pays, what a rejection says, and how a bucket lives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.integration.sqs.shop import Shop

SLOW = "0.001"
"""Tokens a second that no test waits for."""


def limited(**pairs: tuple[str, str]) -> dict[str, str]:
    """Capacity and refill, by kind."""
    found: dict[str, str] = {}
    for kind, (capacity, refill) in pairs.items():
        found |= {f"Throttle{kind}Capacity": capacity, f"Throttle{kind}RefillPerSecond": refill}
    return found


def sent(shop: Shop, url: str, most: int = 30) -> int:
    """How many go before one is refused."""
    for i in range(most):
        try:
            shop.send(url, f"{i}")
        except shop.client.exceptions.ClientError as error:
            assert code_of(error.response) == "Throttling"
            return i
    return most


def code_of(response: Mapping[str, Any]) -> str:
    found: str = response["Error"]["Code"]
    return found


def test_a_call_whose_queue_turns_out_to_have_changed_pays_once(sqs: Shop, other: Shop) -> None:
    url = sqs.queue(limited(Send=("10", SLOW)))
    sqs.send(url, "x")
    other.set(url, VisibilityTimeout="77")
    assert sent(sqs, url) == 9
