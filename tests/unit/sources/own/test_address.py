from __future__ import annotations

import pytest

from fleet.errors import InvalidConfig
from fleet.message import MAX_NAME_CHARACTERS
from fleet.sources.own.address import is_own, name_of, uri_of


@pytest.mark.parametrize("name", ["orders", "a.b-c_d:e", "Ω–1", "n" * MAX_NAME_CHARACTERS])
def test_a_uri_names_the_queue_that_it_was_made_for(name: str) -> None:
    assert name_of(uri_of(name)) == name


def test_the_scheme_is_read_in_any_case_and_the_name_is_not() -> None:
    assert name_of("FLEET://Orders") == "Orders"


def test_a_name_may_be_percent_encoded_and_is_judged_by_what_it_means() -> None:
    assert name_of("fleet://%C3%A4") == "ä"
    with pytest.raises(InvalidConfig):
        name_of("fleet://a%2Fb")


@pytest.mark.parametrize(
    "name",
    ["", *(f"a{sign}b" for sign in "{}/?#@ \n\x1f"), "%7B0%7D", "n" * (MAX_NAME_CHARACTERS + 1)],
)
def test_a_name_that_a_key_or_a_uri_cannot_hold_is_refused_in_words(name: str) -> None:
    assert is_own(f"fleet://{name}")
    with pytest.raises(InvalidConfig, match="needs a name of at most"):
        name_of(f"fleet://{name}")


def test_another_kind_is_not_ours() -> None:
    assert not is_own("fleets://orders")
    with pytest.raises(InvalidConfig):
        name_of("sqs://orders")
