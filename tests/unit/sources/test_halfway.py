from __future__ import annotations

import pytest

from fleet.errors import SourceError, SourceFull, SourceUnavailable
from fleet.sources.base import Unsent, Unsure
from fleet.sources.halfway import told_half_way


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (SourceUnavailable("the line broke"), Unsure, "it may not have been accepted: the line broke"),
        (SourceFull("it is full"), Unsent, "not sent: it is full"),
    ],
    ids=["no answer: nobody knows", "a refusal: not taken"],
)
def test_each_place_says_what_is_known_about_it(error: SourceError, kind: type[str], text: str) -> None:
    found = told_half_way(["too long", None, None, None], accepted={1}, under_way={2}, error=error)
    assert found == ["too long", None, text, f"not sent: {error}"]
    assert [type(one) for one in found[2:]] == [kind, Unsent]


def test_where_nothing_was_accepted_the_error_says_it_all() -> None:
    with pytest.raises(SourceUnavailable, match="the line broke"):
        told_half_way([None], accepted=(), under_way={0}, error=SourceUnavailable("the line broke"))


def test_what_was_accepted_is_so_whatever_was_said_of_it_before() -> None:
    assert told_half_way(["odd"], accepted={0}, under_way={0}, error=SourceUnavailable()) == [None]
