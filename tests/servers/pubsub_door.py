"""The Pub/Sub door as a process, and Google's own client of it."""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from google.api_core.grpc_helpers import wrap_errors
from google.cloud import pubsub_v1

from tests.servers.local import ServerProcess, _accepts, _running, _wait_for
from tests.servers.ports import free_port

PROJECT = "some-project"
TIMEOUT_S = 30.0

_RUN = "from fleet.broker.pubsub.main import run; from fleet.config.settings import load; raise SystemExit(run(load()))"


@dataclass
class PubsubDoor:
    server: ServerProcess
    port: int
    redis_url: str

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@contextmanager
def running_pubsub_door(redis_url: str, *, port: int | None = None) -> Iterator[PubsubDoor]:
    """`port`: to come back where an earlier one was."""
    with tempfile.TemporaryDirectory(prefix="fleet-pubsub-", ignore_cleanup_errors=True) as directory:
        chosen = port or free_port()
        given = {"FLEET_REDIS_URL": redis_url, "FLEET_PUBSUB_PORT": str(chosen)}
        with _running([sys.executable, "-c", _RUN], Path(directory, "pubsub.log"), given) as server:
            _wait_for(server, lambda: _accepts(chosen))
            yield PubsubDoor(server, chosen, redis_url)


class Google:
    """Google's publisher and subscriber at a door, and names that nobody else has."""

    def __init__(self, address: str) -> None:
        self.address = address
        with mock.patch.dict(os.environ, {"PUBSUB_EMULATOR_HOST": address}):
            # One message a batch, at once: a test is about what it sends, and not about batches.
            batching = pubsub_v1.types.BatchSettings(max_messages=1)
            ordering = pubsub_v1.types.PublisherOptions(enable_message_ordering=True)
            self.publisher = pubsub_v1.PublisherClient(batch_settings=batching, publisher_options=ordering)
            self.subscriber = pubsub_v1.SubscriberClient()

    def close(self) -> None:
        self.publisher.stop()
        self.publisher.transport.close()
        self.subscriber.close()

    # Making ------------------------------------------------------------------------------------------

    def new_topic(self) -> str:
        path = self.publisher.topic_path(PROJECT, f"t-{secrets.token_hex(6)}")
        self.publisher.create_topic(name=path)
        return str(path)

    def new_subscription(self, topic: str, **fields: Any) -> str:
        path = self.unused_subscription()
        self.subscriber.create_subscription(request={"name": path, "topic": topic, **fields})
        return path

    def unused_subscription(self) -> str:
        return str(self.subscriber.subscription_path(PROJECT, f"s-{secrets.token_hex(6)}"))

    # Messages ----------------------------------------------------------------------------------------

    def publish(self, topic: str, *bodies: str, key: str = "", **attributes: str) -> list[str]:
        """In this order: without a key, the client would send several at a time."""
        return [
            str(self.publisher.publish(topic, one.encode(), ordering_key=key, **attributes).result(TIMEOUT_S))
            for one in bodies
        ]

    def pull(self, subscription: str, most: int = 10, *, timeout_s: float = TIMEOUT_S) -> list[Any]:
        """Waits for the first."""
        answer = self.subscriber.pull(subscription=subscription, max_messages=most, timeout=timeout_s, retry=None)
        return list(answer.received_messages)

    def pull_now(self, subscription: str, most: int = 10) -> list[Any]:
        """Does not wait. Past the client's own method, which warns of a field that tests have a use for."""
        request = pubsub_v1.types.PullRequest(subscription=subscription, max_messages=most, return_immediately=True)
        return list(self.raw("pull", request).received_messages)

    def pull_soon(self, subscription: str) -> Any:
        """A future."""
        request = pubsub_v1.types.PullRequest(subscription=subscription, max_messages=10)
        return self.subscriber.transport.pull.future(request, timeout=TIMEOUT_S)

    def raw(self, call: str, request: Any) -> Any:
        """Once, as it stands: the client's own methods look at requests, put them into batches and repeat them."""
        transport = self.publisher.transport if call == "publish" else self.subscriber.transport
        return wrap_errors(getattr(transport, call))(request, timeout=TIMEOUT_S)  # type: ignore[no-untyped-call]

    def ack(self, subscription: str, *received: Any) -> None:
        self.subscriber.acknowledge(subscription=subscription, ack_ids=[one.ack_id for one in received])

    def modify(self, subscription: str, seconds: int, *received: Any) -> None:
        ids = [one.ack_id for one in received]
        self.subscriber.modify_ack_deadline(subscription=subscription, ack_ids=ids, ack_deadline_seconds=seconds)


def bodies(received: list[Any]) -> list[str]:
    return [one.message.data.decode() for one in received]
