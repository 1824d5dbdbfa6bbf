"""Names as callers write them."""

from __future__ import annotations

import pytest

from fleet.broker.errors import InvalidArgument
from fleet.broker.spelling import in_our_words

_NAMES = {"max_bytes": "max_bytes", "data": "data", "older_name": "max_bytes"}


@pytest.mark.parametrize("written", ["max_bytes", "maxBytes", "older_name", "olderName"])
def test_a_name_is_known_in_either_spelling(written: str) -> None:
    assert in_our_words({written: 1, "data": 2}, _NAMES, "a thing") == {"max_bytes": 1, "data": 2}


@pytest.mark.parametrize("written", ["MaxBytes", "max-bytes", "MAX_BYTES", "max_Bytes", ""])
def test_no_other_spelling_is_guessed(written: str) -> None:
    with pytest.raises(InvalidArgument, match="a thing: unknown name"):
        in_our_words({written: 1}, _NAMES, "a thing")


def test_a_name_that_is_nearly_right_is_answered_with_the_right_one() -> None:
    with pytest.raises(InvalidArgument, match="unknown name 'maxByte', did you mean max_bytes"):
        in_our_words({"maxByte": 1}, _NAMES, "a thing")


def test_two_names_of_one_thing_are_one_too_many() -> None:
    with pytest.raises(InvalidArgument, match="max_bytes is given twice, the second time as 'olderName'"):
        in_our_words({"maxBytes": 1, "olderName": 2}, _NAMES, "a thing")


def test_none_is_absent() -> None:
    assert in_our_words({"maxBytes": None, "max_bytes": 0}, _NAMES, "a thing") == {"max_bytes": 0}
