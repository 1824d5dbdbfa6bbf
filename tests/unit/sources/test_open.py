from __future__ import annotations

import pytest

from fleet.errors import InvalidConfig
from fleet.operate.explain_source import LOOKED_INTO
from fleet.sources.base import Surroundings
from fleet.sources.open import open_publisher, open_source


def test_a_source_is_known_by_its_queue_name() -> None:
    source = open_source("orders", "sqlite:///q.db?queue=a", 1234)
    assert (source.visibility_ms, source.holds_groups) == (1234, True)
    with pytest.raises(InvalidConfig, match="of queue orders must"):
        open_source("orders", "sqlite:///q.db?queue=a", 0)


def test_the_scheme_is_read_in_any_case() -> None:
    assert open_source("orders", "SQLite:///q.db?queue=a", 1).holds_groups


@pytest.mark.parametrize("uri", ["kafka://user:secret@host/topic", "q.db", ""])
def test_an_unknown_scheme_names_the_known_ones_and_tells_no_password(uri: str) -> None:
    for attempt in (lambda: open_source("q", uri, 1000), lambda: open_publisher(uri)):
        with pytest.raises(InvalidConfig, match="known schemes: .*sqlite") as caught:
            attempt()
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("visibility_ms", [0, -1])
def test_a_visibility_timeout_of_nothing_is_refused(visibility_ms: int) -> None:
    with pytest.raises(InvalidConfig, match="visibility"):
        open_source("q", "sqlite:///q.db?queue=a", visibility_ms)


@pytest.mark.parametrize(
    "uri", ["sqlite:///q.db?queue=q", "fleet://q", "sqs://eu-west-1/q", "nats://h/s/c", "stomp://h/q"]
)
def test_explain_and_a_source_agree_on_whether_it_is_looked_into(uri: str) -> None:
    # Of one that is not, its coordinator remembers what `fleet explain` cannot ask the source.
    around = Surroundings(redis_url="redis://127.0.0.1:1/0")
    assert open_source("q", uri, 1000, around=around).is_looked_into == (uri.partition(":")[0] in LOOKED_INTO)
