from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.config.router import bare_uri, canonical, merge, parse_router_config, redacted
from fleet.errors import InvalidConfig


def config_bytes(*, pools: list[Any] | None = None, queues: list[Any] | None = None, **more: Any) -> bytes:
    return json.dumps({"queues": queues or [], "processingPools": pools or [], **more}).encode()


def refusal(data: bytes) -> str:
    with pytest.raises(InvalidConfig) as caught:
        parse_router_config(data)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_the_example_of_the_contract_is_read() -> None:
    config = parse_router_config(
        b'{"queues":[{"queueName":"q1","queueUri":"https://sqs.eu/q1","connections":1,"visibilityTimeout":120}],'
        b'"connections":1,"processingPools":[{"code":"POOL-HIGH","concurrency":10,"rateLimitPerMinute":null,'
        b'"onFailure":"return"}]}'
    )
    pool = config.pool("POOL-HIGH")
    queue = config.queue("q1")
    assert pool is not None and queue is not None
    assert (pool.concurrency, pool.capacity, pool.rate_limit_per_minute, pool.on_failure) == (10, 200, None, "return")
    assert (queue.connections, queue.visibility_timeout_s) == (1, 120)
    assert config.remarks == ()


@pytest.mark.parametrize(
    ("pool", "concurrency", "capacity"),
    [
        ({}, 1, 50),
        ({"concurrency": 0}, 1, 50),
        ({"concurrency": None, "rateLimitPerMinute": 600}, 10, 200),
        ({"concurrency": 0, "rateLimitPerMinute": 59}, 1, 50),
        ({"concurrency": 3, "rateLimitPerMinute": 600}, 3, 60),
        ({"concurrency": 2}, 2, 50),
        ({"concurrency": 100, "capacity": 7}, 100, 7),
    ],
)
def test_concurrency_and_capacity_follow_the_rate_when_absent(
    pool: dict[str, Any], concurrency: int, capacity: int
) -> None:
    read = parse_router_config(config_bytes(pools=[{"code": "A", **pool}])).pool("A")
    assert read is not None
    assert (read.concurrency, read.capacity) == (concurrency, capacity)


def test_the_default_pool_is_there_unless_it_is_named() -> None:
    added = parse_router_config(b"{}").pool("DEFAULT-POOL")
    named = parse_router_config(config_bytes(pools=[{"code": "DEFAULT-POOL", "concurrency": 3}])).pool("DEFAULT-POOL")
    assert added is not None and named is not None
    assert (added.concurrency, added.capacity) == (20, 400)
    assert named.concurrency == 3


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("concurrency", -1, "processingPools[0].concurrency: must be an integer from 0"),
        ("concurrency", "10", 'is "10"'),
        ("concurrency", 1.5, "is 1.5"),
        ("concurrency", True, "is true"),
        ("concurrency", [1], "processingPools[0].concurrency"),
        ("rateLimitPerMinute", 0, "processingPools[0].rateLimitPerMinute: must be an integer from 1"),
        ("onFailure", "explode", "processingPools[0].onFailure: must be one of return, skip, hold, park"),
        ("onFailure", 3, "processingPools[0].onFailure: must be printable text"),
        ("capacity", 0, "processingPools[0].capacity"),
        ("parkAfter", 0, "processingPools[0].parkAfter"),
        ("code", "", "processingPools[0].code: is missing"),
        ("code", None, "processingPools[0].code: is missing"),
        ("code", 7, "processingPools[0].code: must be printable text"),
        ("code", "a{b", "without spaces and braces"),
        ("code", "a}b", "without spaces and braces"),
        ("code", "a b", "without spaces and braces"),
        ("code", "a\u0007", "processingPools[0].code: must be printable text"),
        ("code", "x" * 129, "at most 128 characters"),
    ],
)
def test_a_wrong_pool_is_refused_with_its_path(field: str, value: Any, words: str) -> None:
    assert words in refusal(config_bytes(pools=[{"code": "A", field: value}]))


@pytest.mark.parametrize(
    ("queue", "words"),
    [
        ({}, "queues[0].queueUri: is missing"),
        ({"queueUri": 5}, "queues[0].queueUri: must be printable text"),
        ({"queueUri": "just-a-name"}, "queues[0].queueUri: has no scheme"),
        ({"queueUri": "fleet://a", "connections": 0}, "queues[0].connections"),
        ({"queueUri": "fleet://a", "connections": "2"}, "queues[0].connections"),
        ({"queueUri": "fleet://a", "visibilityTimeout": 43201}, "queues[0].visibilityTimeout"),
        ({"queueUri": "fleet://a", "queueName": "a{b}"}, "queues[0].queueName: must be at most 512"),
        ({"queueUri": "fleet://{a}"}, "queues[0].queueUri: must be at most 512"),
        ({"queueUri": "fleet://a", "queueName": ["a"]}, "queues[0].queueName: must be printable text"),
    ],
)
def test_a_wrong_queue_is_refused_with_its_path(queue: dict[str, Any], words: str) -> None:
    assert words in refusal(config_bytes(queues=[queue]))


def test_every_problem_is_named_in_one_line() -> None:
    text = refusal(
        config_bytes(
            pools=[{"code": "A", "concurrency": -1}, {"code": "A", "rateLimitPerMinute": 0}, "what"],
            queues=[{"queueName": "q", "queueUri": "fleet://a"}, {"queueName": "q", "queueUri": "fleet://b"}],
            connections="many",
        )
    )
    for words in (
        "connections: must be",
        "processingPools[0].concurrency",
        "processingPools[1].rateLimitPerMinute",
        "processingPools[2]: must be an object",
        'processingPools[1]: pool "A" is already at processingPools[0]',
        'queues[1]: queue "q" is already at queues[0]',
    ):
        assert words in text


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff\xfe\xfd", b"[" * 100_000, b'{"connections":1,"connections":2}', b"1" * 5000]
)
def test_what_is_no_json_is_refused(data: bytes) -> None:
    assert "not a JSON document" in refusal(data) or "must be an object" in refusal(data)


@pytest.mark.parametrize("data", [b"[]", b"null", b'"x"', b'{"queues":{}}', b'{"processingPools":3}'])
def test_a_document_of_the_wrong_shape_is_refused(data: bytes) -> None:
    assert "must be" in refusal(data)


def test_a_password_never_appears_in_an_error_a_repr_or_what_is_shown() -> None:
    text = refusal(config_bytes(queues=[{"queueUri": "stomp://me:s3cr/et@host/q"}]))
    assert "s3cr" not in text and "et@" not in text
    config = parse_router_config(
        config_bytes(
            queues=[{"queueUri": "stomp://me:s3cret@host/q"}, {"queueUri": "nats://host/s/c?token=s3cret"}],
            pools=[{"code": "A", "secret": "s3cret"}],
        )
    )
    assert "s3cret" not in repr(config)
    assert b"s3cret" not in redacted(config)
    assert canonical(config).count(b"s3cret") == 3
    assert "s3cret" not in refusal(config_bytes(pools=[{"code": "A", "secret": "s3cret\n"}]))


@pytest.mark.parametrize(
    ("uri", "bare"),
    [
        ("stomp://u:p@host:61613/q", "stomp://host:61613/q"),
        ("sqlite:///var/my path/q.db?queue=a", "sqlite:///var/my path/q.db?queue=a"),
        ("sqlite:///a@b/q.db?queue=a", "sqlite:///a@b/q.db?queue=a"),
        ("nats://host/s/c?token=x", "nats://host/s/c"),
        ("nats://host/s/c?token=x&batch=5", "nats://host/s/c?batch=5"),
    ],
)
def test_the_identity_of_an_unnamed_queue_is_its_uri_without_user_and_password(uri: str, bare: str) -> None:
    assert bare_uri(uri) == bare
    assert parse_router_config(config_bytes(queues=[{"queueUri": uri}])).queues[0].name == bare


def test_one_queue_under_two_names_is_refused() -> None:
    text = refusal(
        config_bytes(
            queues=[{"queueName": "a", "queueUri": "nats://h/s/c"}, {"queueName": "b", "queueUri": "nats://u@h/s/c"}]
        )
    )
    assert "queues[1]: queueUri of" in text


def test_unknown_queue_kinds_and_fields_are_allowed_and_named() -> None:
    config = parse_router_config(
        config_bytes(queues=[{"queueUri": "kafka://h/t"}], pools=[{"code": "A", "concurency": 3}])
    )
    assert 'queues[0].queueUri: unknown kind of queue "kafka"' in config.remarks
    assert 'processingPools[0]: unknown field "concurency", did you mean concurrency?' in config.remarks


def test_both_kinds_of_secret_are_refused() -> None:
    assert "give one of them" in refusal(config_bytes(pools=[{"code": "A", "secret": "x", "secretFile": "y"}]))


def test_in_a_merge_the_first_wins() -> None:
    first = parse_router_config(
        config_bytes(pools=[{"code": "A", "concurrency": 1}], queues=[{"queueName": "q", "queueUri": "fleet://one"}])
    )
    second = parse_router_config(
        config_bytes(
            pools=[{"code": "A", "concurrency": 2}, {"code": "DEFAULT-POOL", "concurrency": 5}, {"code": "B"}],
            queues=[{"queueName": "q", "queueUri": "fleet://two"}, {"queueName": "r", "queueUri": "fleet://one"}],
        )
    )
    merged = merge([first, second])
    assert {pool.code: pool.concurrency for pool in merged.pools} == {"A": 1, "B": 1, "DEFAULT-POOL": 5}
    assert [(queue.name, queue.uri) for queue in merged.queues] == [("q", "fleet://one")]


def test_merging_nothing_still_has_the_default_pool() -> None:
    assert merge([]).pool("DEFAULT-POOL") is not None


codes = st.text(st.characters(blacklist_categories=("C", "Z"), blacklist_characters="{}"), min_size=1, max_size=128)
pools = st.fixed_dictionaries(
    {"code": codes},
    optional={
        "concurrency": st.integers(0, 1000) | st.none(),
        "rateLimitPerMinute": st.integers(1, 10**6) | st.none(),
        "onFailure": st.sampled_from(["return", "skip", "hold", "park"]),
        "capacity": st.integers(1, 10**6),
        "parkAfter": st.integers(1, 100),
        "secret": codes,
    },
)
pool_lists = st.lists(pools, max_size=5, unique_by=lambda pool: pool["code"])


@given(pool_lists, st.randoms())
def test_the_canonical_form_does_not_depend_on_order_and_reads_back(written: list[Any], random: Any) -> None:
    shuffled = list(written)
    random.shuffle(shuffled)
    once = canonical(parse_router_config(config_bytes(pools=written)))
    assert once == canonical(parse_router_config(config_bytes(pools=shuffled)))
    assert canonical(parse_router_config(once)) == once


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
)
fields = ["queueName", "queueUri", "connections", "visibilityTimeout", "code", "concurrency", "onFailure", "secret"]


@given(
    st.fixed_dictionaries(
        {},
        optional={
            key: json_values | st.lists(st.dictionaries(st.sampled_from(fields), json_values), max_size=3)
            for key in ("queues", "processingPools", "connections")
        },
    )
)
def test_no_document_breaks_the_parser_other_than_by_being_refused(document: Any) -> None:
    try:
        parse_router_config(json.dumps(document).encode())
    except InvalidConfig as error:
        assert str(error).isprintable()
