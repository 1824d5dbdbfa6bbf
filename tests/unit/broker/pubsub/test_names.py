"""Paths of Pub/Sub and our names, and lists a page at a time."""

from __future__ import annotations

import re

import pytest

from fleet.broker.errors import InvalidArgument
from fleet.broker.pubsub.names import (
    MOST_A_PAGE,
    page,
    project_of,
    subscription_of,
    subscription_path,
    topic_of,
    topic_path,
)


def test_a_path_and_its_parts_are_one_thing() -> None:
    assert topic_of(topic_path("my-project", "orders")) == ("my-project", "orders")
    assert subscription_of(subscription_path("my:project", "b.c_d~e+f%g")) == ("my:project", "b.c_d~e+f%g")
    assert project_of("projects/p") == "p"


@pytest.mark.parametrize(
    "path",
    ["", "orders", "projects/p", "projects/p/topics/", "projects//topics/t", "projects/p/subscriptions/t",
     "projects/p/topics/a/b", "/projects/p/topics/t"],
)  # fmt: skip
def test_any_other_path_is_refused_in_googles_words(path: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(f"Invalid [topics] name: (name={path})")):
        topic_of(path)


@pytest.mark.parametrize("name", ["9th", "googol", "a" * 256, "a{b}"])
def test_a_name_that_the_broker_refuses_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="Invalid subscription name"):
        subscription_of(subscription_path("p", name))


@pytest.mark.parametrize("path", ["p", "projects/", "projects/p/topics/t"])
def test_a_project_is_a_project(path: str) -> None:
    with pytest.raises(InvalidArgument, match="Invalid .projects. name"):
        project_of(path)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 0])
def test_pages_together_are_the_list(size: int) -> None:
    names = ["a", "b", "c", "d", "e"]
    found, token = list[str](), ""
    while True:
        one, token = page(names, size, token)
        assert 0 < len(one) <= (size or 5)
        found += one
        if not token:
            break
    assert found == names


def test_a_page_has_its_limits() -> None:
    names = sorted(f"n{number:05}" for number in range(MOST_A_PAGE + 1))
    assert page(names, 10 * MOST_A_PAGE, "") == (names[:-1], names[-2])
    assert page([], 10, "") == ([], "")
    assert page(["a"], 10, "b") == ([], "")
    with pytest.raises(InvalidArgument, match="page_size"):
        page(names, -1, "")
