"""Names of queues, out of URLs and ARNs and into them."""

from __future__ import annotations

import pytest

from fleet.broker.sqs import names
from fleet.broker.sqs.errors import SqsError


@pytest.mark.parametrize("name", ["a", "A-b_9", "x" * 80])
def test_a_name_is_letters_digits_hyphens_and_underscores(name: str) -> None:
    names.check_name(name, fifo=False)


@pytest.mark.parametrize("name", ["", "x" * 81, "a.b", "a b", "a/b", "ü", "a\n", "a.fifo", "٣"])
def test_another_name_is_refused(name: str) -> None:
    with pytest.raises(SqsError) as refused:
        names.check_name(name, fifo=False)
    told = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
    assert (refused.value.code, refused.value.message) == ("InvalidParameterValue", told)


def test_the_suffix_counts_towards_the_80_characters() -> None:
    names.check_name("x" * 75 + ".fifo", fifo=True)
    with pytest.raises(SqsError):
        names.check_name("x" * 76 + ".fifo", fifo=True)


@pytest.mark.parametrize("name", ["a", ".fifo", "a.fifo.fifo", "a.FIFO", "a.fifo\n"])
def test_a_fifo_queue_needs_its_suffix(name: str) -> None:
    with pytest.raises(SqsError) as refused:
        names.check_name(name, fifo=True)
    assert "must end with .fifo suffix" in refused.value.message


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("http://localhost:9324/000000000000/q", "q"),
        ("https://sqs.eu-west-1.amazonaws.com/123456789012/q.fifo", "q.fifo"),
        ("http://localhost/queue/eu-west-1/000000000000/q", "q"),
        ("http://localhost/q/", "q"),
        ("http://localhost/q?Action=x/y#z", "q"),
        ("/000000000000/q", "q"),
        ("q", "q"),
        ("http://localhost", ""),
        ("http://localhost/", ""),
        ("http://q", ""),
        ("http://localhost/a b", ""),
        ("http://localhost/..", ""),
        ("http://localhost/%71", ""),
        ("", ""),
        ("://", ""),
        ("?", ""),
    ],
)
def test_only_the_last_segment_of_a_url_counts(url: str, name: str) -> None:
    assert names.name_of_url(url) == name


def test_a_url_of_ours_names_its_queue() -> None:
    url = names.queue_url(names.base_url("http", "localhost:9324"), "q.fifo")
    assert url == "http://localhost:9324/000000000000/q.fifo"
    assert names.name_of_url(url) == "q.fifo"


@pytest.mark.parametrize(
    "host", ["", "a b", "a/b", "a@b", "-a", "a:x", "a:123456", "[::1", "a\r\nx: y", "ü", "a" * 300]
)
def test_a_host_that_is_none_makes_no_url(host: str) -> None:
    with pytest.raises(SqsError) as refused:
        names.base_url("http", host)
    assert refused.value.code == "InvalidAddress"


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "sqs.localhost", "127.0.0.1:9324", "127.9.9.9", "[::1]:9324"]
)
def test_a_host_that_is_this_machine(host: str) -> None:
    assert names.is_loopback(host)


@pytest.mark.parametrize(
    "host",
    ["", "example.org", "localhost.example.org", "127.0.0.1.example.org", "10.0.0.1", "[::2]", "0.0.0.0", "2130706433"],
)
def test_a_host_that_is_another_machine_or_may_be(host: str) -> None:
    assert not names.is_loopback(host)


def test_an_arn_names_its_queue() -> None:
    arn = names.arn("eu-west-1", "q.fifo")
    assert arn == "arn:aws:sqs:eu-west-1:000000000000:q.fifo"
    assert names.name_of_arn(arn) == "q.fifo"
    assert names.name_of_arn("arn:aws-cn:sqs:cn-north-1:123456789012:q") == "q"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "q",
        "arn:aws:sns:r:000000000000:q",
        "arn:aws:sqs:r:1:q",
        "arn:aws:sqs:r:000000000000:a.b",
        "arn:aws:sqs:r:000000000000:q\n",
    ],
)
def test_what_is_no_arn_of_a_queue_names_none(text: str) -> None:
    assert names.name_of_arn(text) == ""
