"""What tests of the SQS door say again and again: a queue of their own, its messages, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.servers.sqs_door import REGION, Protocol

ACCOUNT = "000000000000"
_numbers = count(1)


def a_name(*, fifo: bool = False) -> str:
    return f"q-{next(_numbers)}" + (".fifo" if fifo else "")


def name_of(url: str) -> str:
    return url.rpartition("/")[2]


def arn_of(url: str) -> str:
    return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name_of(url)}"


@dataclass
class Shop:
    client: Any
    url: str
    protocol: Protocol

    def queue(self, given: Mapping[str, str] | None = None, *, fifo: bool = False, name: str = "", **more: str) -> str:
        """The URL of a new one."""
        attributes = {**(given or {}), **more}
        if fifo:
            attributes["FifoQueue"] = "true"
        made: str = self.client.create_queue(QueueName=name or a_name(fifo=fifo), Attributes=attributes)["QueueUrl"]
        return made

    def fifo(self, given: Mapping[str, str] | None = None, **more: str) -> str:
        """One that knows a message by its body."""
        return self.queue({"ContentBasedDeduplication": "true", **(given or {}), **more}, fifo=True)

    def send(self, url: str, body: str, group: str = "", **more: Any) -> dict[str, Any]:
        if group:
            more["MessageGroupId"] = group
        found: dict[str, Any] = self.client.send_message(QueueUrl=url, MessageBody=body, **more)
        return found

    def receive(self, url: str, most: int = 10, **more: Any) -> list[dict[str, Any]]:
        found = self.client.receive_message(QueueUrl=url, MaxNumberOfMessages=most, **more)
        messages: list[dict[str, Any]] = found.get("Messages", [])
        return messages

    def one(self, url: str, **more: Any) -> dict[str, Any]:
        """The message that a receive brings, with everything that is known of it."""
        (found,) = self.receive(url, MessageSystemAttributeNames=["All"], MessageAttributeNames=["All"], **more)
        return found

    def bodies(self, url: str, **more: Any) -> list[str]:
        return [one["Body"] for one in self.receive(url, **more)]

    def delete(self, url: str, message: dict[str, Any]) -> None:
        self.client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    def hide(self, url: str, message: dict[str, Any], seconds: int) -> None:
        self.client.change_message_visibility(
            QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=seconds
        )

    def attributes(self, url: str, *names: str) -> dict[str, str]:
        asked = list(names) or ["All"]
        found = self.client.get_queue_attributes(QueueUrl=url, AttributeNames=asked)
        described: dict[str, str] = found.get("Attributes", {})
        return described

    def set(self, url: str, **attributes: str) -> None:
        self.client.set_queue_attributes(QueueUrl=url, Attributes=attributes)

    def counts(self, url: str) -> tuple[int, int, int]:
        """Visible, not visible, delayed."""
        found = self.attributes(url)
        name = "ApproximateNumberOfMessages"
        return int(found[name]), int(found[name + "NotVisible"]), int(found[name + "Delayed"])


@contextmanager
def refused(code: str, message: str | Callable[[str], bool] = "", *, status: int = 400) -> Iterator[dict[str, Any]]:
    """To the letter, as the SDK reads it."""
    told: dict[str, Any] = {}
    with pytest.raises(ClientError) as caught:
        yield told
    response = caught.value.response
    told |= response
    assert response["Error"]["Code"] == code
    found = response["Error"]["Message"]
    assert message(found) if callable(message) else (not message or found == message)
    assert response["ResponseMetadata"]["HTTPStatusCode"] == status
    told["Headers"] = response["ResponseMetadata"]["HTTPHeaders"]
