"""What is said of two configurations that are not the same."""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import Any

from fleet.config.difference import difference
from fleet.config.router import PoolConfig, QueueConfig, RouterConfig, parse_router_config


def config(queues: dict[str, str], **pools: int) -> RouterConfig:
    document = {
        "queues": [{"queueName": name, "queueUri": uri} for name, uri in queues.items()],
        "processingPools": [{"code": code, "concurrency": n} for code, n in pools.items()],
    }
    return parse_router_config(json.dumps(document).encode())


def test_the_same_meaning_is_no_difference() -> None:
    assert difference(config({"q": "fleet://a"}, A=1, B=2), config({"q": "fleet://a"}, B=2, A=1)) == ""


def pool(code: str = "A", **fields: Any) -> RouterConfig:
    return parse_router_config(json.dumps({"processingPools": [{"code": code, "concurrency": 1, **fields}]}).encode())


def test_what_is_only_here_or_only_in_force_is_named() -> None:
    here, in_force = config({"q": "fleet://a"}, A=1, B=2), config({"r": "fleet://b"}, A=1, C=1)
    assert difference(here, in_force) == (
        "queue q only here, queue r only in force, pool B only here, pool C only in force"
    )


def test_of_what_both_have_the_field_is_named_with_both_values() -> None:
    assert difference(pool(rateLimitPerMinute=60), pool()) == "pool A.rateLimitPerMinute: 60 here → none in force"
    assert difference(pool(capacity=70), pool()) == "pool A.capacity: 70 here → none in force"
    assert difference(pool(onFailure="hold"), pool()) == "pool A.onFailure: hold here → return in force"
    assert difference(config({"q": "fleet://a"}), config({"q": "fleet://b"})) == (
        "queue q.queueUri: fleet://a here → fleet://b in force"
    )


def test_every_field_that_may_differ_is_known_by_its_name_in_the_file() -> None:
    known = {"name", "uri", "connections", "visibility_timeout_s", "draining"}
    assert {field.name for field in dataclasses.fields(QueueConfig)} == known
    known = {"code", "concurrency", "capacity", "rate_limit_per_minute", "on_failure", "park_after", "secret"}
    assert {field.name for field in dataclasses.fields(PoolConfig)} == {*known, "secret_file", "implied"}


def test_of_many_fields_the_first_are_named_and_the_others_counted() -> None:
    here, in_force = config({}, **{f"P{i}": 10 for i in range(9)}), config({}, **{f"P{i}": 11 for i in range(9)})
    named = ", ".join(
        f"pool {field} in force"
        for field in (
            "P0.concurrency: 10 here → 11",
            "P1.concurrency: 10 here → 11",
            "P2.concurrency: 10 here → 11",
        )
    )
    assert difference(here, in_force) == f"{named}, 6 more of pools in both"


def test_it_fits_into_a_line_whatever_the_names_and_values() -> None:
    long = "P" * 120
    assert len(difference(pool(long, secretFile="f" * 5000), pool(long, secretFile="g" * 5000))) < 250
    assert len(difference(config({}, **{f"{long}{i}": 1 for i in range(9)}), config({}))) < 250
    names = {"n" * 500: "fleet://" + "a" * 5000}
    assert len(difference(config(names), config({name: uri + "b" for name, uri in names.items()}))) < 250


def test_of_many_the_first_are_named_and_the_others_counted() -> None:
    many = config({}, **{f"P{i}": 1 for i in range(9)})
    assert difference(many, config({})) == "pools P0, P1, P2 and 6 more only here"


def test_a_password_is_not_shown() -> None:
    here, in_force = config({"q": "nats://me:one@h/s/c"}), config({"q": "nats://me:other@h/s/c"})
    assert difference(here, in_force) == "queue q.queueUri: differs (not shown)"


def test_a_secret_is_not_shown() -> None:
    one, other = ("whsec_" + base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))
    assert difference(pool(secret=one), pool(secret=other)) == "pool A.secret: differs (not shown)"
    assert difference(pool(secret=one), pool()) == "pool A.secret: (not shown) here → none in force"
