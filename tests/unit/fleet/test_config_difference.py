"""What is said of two configurations that are not the same."""

from __future__ import annotations

import json

from fleet.config import RouterConfig, parse_router_config
from fleet.config_difference import difference


def config(queues: dict[str, str], **pools: int) -> RouterConfig:
    document = {
        "queues": [{"queueName": name, "queueUri": uri} for name, uri in queues.items()],
        "processingPools": [{"code": code, "concurrency": n} for code, n in pools.items()],
    }
    return parse_router_config(json.dumps(document).encode())


def test_the_same_meaning_is_no_difference() -> None:
    assert difference(config({"q": "fleet://a"}, A=1, B=2), config({"q": "fleet://a"}, B=2, A=1)) == ""


def test_what_is_only_here_only_in_force_or_changed_is_named() -> None:
    here, in_force = config({"q": "fleet://a"}, A=1, B=2), config({"r": "fleet://b"}, A=1, B=3, C=1)
    assert difference(here, in_force) == (
        "queue q only here, queue r only in force, pool C only in force, pool B changed"
    )


def test_of_many_the_first_are_named_and_the_others_counted() -> None:
    many = config({}, **{f"P{i}": 1 for i in range(9)})
    assert difference(many, config({})) == "pools P0, P1, P2 and 6 more only here"


def test_a_password_is_not_shown() -> None:
    here, in_force = config({"q": "nats://me:one@h/s/c"}), config({"q": "nats://me:other@h/s/c"})
    assert difference(here, in_force) == "queue q changed"
