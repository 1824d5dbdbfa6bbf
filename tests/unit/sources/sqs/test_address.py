"""How a queue of SQS is named."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fleet.errors import InvalidConfig
from fleet.sources.base import Surroundings
from fleet.sources.open import open_source
from fleet.sources.sqs.address import parse_address
from tests.servers.scripted_sqs import ScriptedSqs


@pytest.mark.parametrize(
    ("uri", "name", "region", "account", "endpoint"),
    [
        ("sqs://eu-west-1/orders", "orders", "eu-west-1", "", ""),
        ("SQS://eu-west-1/123456789012/orders.fifo", "orders.fifo", "eu-west-1", "123456789012", ""),
        ("sqs:///orders", "orders", "", "", ""),
        ("https://sqs.eu-west-1.amazonaws.com/1234/q", "q", "eu-west-1", "", "https://sqs.eu-west-1.amazonaws.com"),
        ("https://sqs-fips.us-east-1.amazonaws.com/1/q", "q", "us-east-1", "", "https://sqs-fips.us-east-1.amazonaws.com"),
        ("https://sqs.cn-north-1.amazonaws.com.cn/1/q", "q", "cn-north-1", "", "https://sqs.cn-north-1.amazonaws.com.cn"),
        ("https://vpce-1-a.sqs.eu-west-1.vpce.amazonaws.com/1/q", "q", "eu-west-1", "",
         "https://vpce-1-a.sqs.eu-west-1.vpce.amazonaws.com"),
        ("https://eu-west-1.queue.amazonaws.com/1/q", "q", "eu-west-1", "", "https://eu-west-1.queue.amazonaws.com"),
        ("http://127.0.0.1:4566/000000000000/q.fifo", "q.fifo", "", "", "http://127.0.0.1:4566"),
    ],
)  # fmt: skip
def test_a_uri_is_read(uri: str, name: str, region: str, account: str, endpoint: str) -> None:
    address = parse_address(uri)
    assert (address.name, address.region, address.account, address.endpoint) == (name, region, account, endpoint)
    source = open_source("orders", uri, 1000)
    assert (source.holds_groups, source.crash_wait_ms) == (name.endswith(".fifo"), 0)


@pytest.mark.parametrize(
    "uri",
    [
        "sqs://", "sqs://eu-west-1", "sqs://eu-west-1/", "sqs://eu-west-1/a b", "sqs://eu-west-1/me/orders", "https:///q",
        "sqs://eu-west-1/1/2/orders", "sqs://sqs.eu-west-1.amazonaws.com/1/q", "sqs://eu-west-1/q?wait=1",
        "https://user:secret@sqs.eu-west-1.amazonaws.com/1/q", "https://sqs.eu-west-1.amazonaws.com/",
    ],
)  # fmt: skip
def test_a_wrong_uri_is_refused_and_tells_no_password(uri: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        open_source("orders", uri, 1000)
    assert "secret" not in str(caught.value)


def test_a_visibility_timeout_that_sqs_cannot_do_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="43200"):
        open_source("orders", "sqs://eu-west-1/orders", 43_201_000)


async def test_the_endpoint_of_the_settings_is_called_instead_of_the_uris(sqs: ScriptedSqs) -> None:
    around = Surroundings(sqs_endpoint=sqs.url.rpartition("/123456789012")[0])
    uri = "https://sqs.eu-central-1.amazonaws.com/1234/orders"
    source = open_source("orders", uri, 1000, around=around)
    await source.open()
    await source.close()
    assert [asked["QueueUrl"] for asked in sqs.asked("GetQueueAttributes")] == [uri]


def test_boto3_is_not_imported_before_a_queue_of_sqs_is_opened() -> None:
    program = "import sys, fleet.cli.main, fleet.sources.open; sys.exit('boto3' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
