"""Which rows of the table a test with a whole fleet is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tests.servers.brokers import CANNOT, UNORDERED

T = TypeVar("T", bound=Callable[..., object])
_NAME = "table_rows"
_NO_ORDER = "a standard queue of SQS keeps the order as well as it can"


def rows(*facts: str, ordered: str = "") -> Callable[[T], T]:
    """The facts that a test proves; `ordered` of kinds that keep the order alone."""

    def note(test: T) -> T:
        setattr(test, _NAME, (facts, ordered))
        return test

    return note


def rows_of(test: Callable[..., object], kinds: list[str]) -> dict[str, dict[str, str]]:
    """Each row → kind → why that kind cannot; '' where it can. Empty for a test that is none."""
    facts, ordered = getattr(test, _NAME, ((), ""))
    reasons = CANNOT.get(test.__name__, {})
    found = {fact: {kind: reasons.get(kind, "") for kind in kinds} for fact in facts}
    if ordered:
        found[ordered] = {kind: reasons.get(kind) or (_NO_ORDER if kind in UNORDERED else "") for kind in kinds}
    return found
