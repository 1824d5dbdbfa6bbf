from __future__ import annotations

from pathlib import Path

import pytest

from fleet.errors import InvalidConfig
from fleet.sources.sqlite.address import QueueAddress, parse_address, uri_of


@pytest.mark.parametrize(
    ("uri", "path", "queue"),
    [
        ("sqlite:///q.db?queue=a", "q.db", "a"),
        ("sqlite:///data/q.db?queue=a", "data/q.db", "a"),
        ("sqlite:////srv/q.db?queue=a", "/srv/q.db", "a"),
        ("sqlite:///with%20space.db?queue=b%2Fc", "with space.db", "b/c"),
    ],
)
def test_the_path_begins_after_the_third_slash(uri: str, path: str, queue: str) -> None:
    assert parse_address(uri) == QueueAddress(Path(path), queue)


@pytest.mark.parametrize(
    ("uri", "complaint"),
    [
        ("sqlite://data/q.db?queue=a", "three slashes"),
        ("sqlite:///?queue=a", "no file"),
        ("sqlite:///folder/?queue=a", "no file"),
        ("sqlite:///q.db", "must name one queue"),
        ("sqlite:///q.db?queue=", "must name one queue"),
        ("sqlite:///q.db?queue=a&queue=b", "must name one queue"),
        ("sqlite:///q.db?queue=a&color=red", "unknown option: color"),
    ],
)
def test_a_wrong_address_is_named(uri: str, complaint: str) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        parse_address(uri)


@pytest.mark.parametrize(("path", "queue"), [("/srv/q.db", "a"), ("/with space/50%?.db", "b/c&d")])
def test_a_uri_leads_back_to_its_address(path: str, queue: str) -> None:
    address = QueueAddress(Path(path), queue)
    assert parse_address(uri_of(address)) == address
