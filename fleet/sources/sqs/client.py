"""One SQS queue, and the blocking calls to it. Each is made once: the caller decides whether to try again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config

from fleet.errors import SourceError, SourceUnavailable
from fleet.sources.sqs.address import SqsAddress
from fleet.sources.sqs.entry import GROUP_ATTRIBUTE, QueueFacts
from fleet.sources.sqs.errors import NotAllowed, SqsRefused, is_busy, translated

log = logging.getLogger("fleet.sources")

BATCH = 10
"""Entries per call, and messages per receive: SQS takes and gives no more."""
CONNECT_TIMEOUT_S = 5
CALL_TIMEOUT_S = 25
"""More than a long poll takes."""
_ANY_REGION = "us-east-1"
"""For the signature, if a local endpoint is given and no region is named."""
_WAITING = "ApproximateNumberOfMessages"
_INVISIBLE = ("ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed")

_session: boto3.session.Session | None = None
_session_lock = threading.Lock()


class SqsQueue:
    """Its client may be used by many threads at once."""

    def __init__(self, *, address: SqsAddress, endpoint: str, connections: int) -> None:
        self._address = address
        self._endpoint = endpoint or address.endpoint
        self._connections = connections
        self._client: Any = None
        self._url = ""

    def connect(self) -> QueueFacts:
        """Find the queue, which also proves credentials and region. Takes nothing from it."""
        try:
            self._client = self._client or _new_client(self._address.region, self._endpoint, self._connections)
            self._url = self._address.url or self._url_of_name()
        except SourceError:
            raise
        except Exception as error:
            raise self._translated(error) from error
        # Ask for all of them: AWS refuses a request for FifoQueue by name on a standard queue.
        told = self._attributes("All")
        return QueueFacts(told.get("FifoQueue") == "true", int(told.get("MaximumMessageSize", 256 * 1024)))

    def receive(self, most: int, *, wait_s: int, visibility_s: int) -> list[dict[str, Any]]:
        answer = self._call(
            "receive_message",
            MaxNumberOfMessages=most,
            WaitTimeSeconds=wait_s,
            VisibilityTimeout=visibility_s,
            # The older name of this field: every SQS look-alike knows it, and AWS keeps it.
            AttributeNames=["ApproximateReceiveCount", "MessageGroupId"],
            MessageAttributeNames=[GROUP_ATTRIBUTE],
        )
        messages: list[dict[str, Any]] = answer.get("Messages") or []
        return messages

    def delete(self, receipts: Sequence[str]) -> list[bool]:
        return self._settle("delete_message_batch", [{"ReceiptHandle": receipt} for receipt in receipts])

    def show_after(self, receipts: Iterable[tuple[str, int]]) -> list[bool]:
        """Show each again after its own number of seconds from now."""
        return self._settle(
            "change_message_visibility_batch",
            [{"ReceiptHandle": receipt, "VisibilityTimeout": seconds} for receipt, seconds in receipts],
        )

    def send(self, entries: Sequence[dict[str, Any]]) -> list[str | None] | None:
        """For each entry None, or why SQS did not take it. A bare None if one of several spoiled the call: none is
        in."""
        try:
            faults = self._batch("send_message_batch", entries)
        except SqsRefused as error:
            if len(entries) == 1:
                return [str(error)]
            # One of them spoils the call and SQS does not say which.
            return None
        return [f"SQS did not take it: {fault.code}: {fault.text}" if fault else None for fault in faults]

    def depth(self) -> tuple[int, int]:
        """Waiting, and leased or delayed."""
        told = self._attributes(_WAITING, *_INVISIBLE)
        return int(told.get(_WAITING, 0)), sum(int(told.get(name, 0)) for name in _INVISIBLE)

    def close(self) -> None:
        """Close the connections not in use. One that comes back later, or that a late call opens, needs another
        close."""
        if self._client is not None:
            self._client.close()

    def _attributes(self, *names: str) -> dict[str, str]:
        told: dict[str, str] = self._call("get_queue_attributes", AttributeNames=list(names)).get("Attributes") or {}
        if not told:
            raise SourceUnavailable(f"SQS queue {self._address.name}: no answer from SQS")
        return told

    def _url_of_name(self) -> str:
        owner = {"QueueOwnerAWSAccountId": self._address.account} if self._address.account else {}
        return str(self._client.get_queue_url(QueueName=self._address.name, **owner)["QueueUrl"])

    def _settle(self, operation: str, entries: Sequence[dict[str, Any]]) -> list[bool]:
        """False for a receipt handle that is no longer valid. A 2xx for the batch says nothing about its entries."""
        try:
            faults = self._batch(operation, entries)
            again = [place for place, fault in enumerate(faults) if fault and fault.is_busy]
            if again:
                for place, fault in zip(again, self._batch(operation, [entries[i] for i in again]), strict=True):
                    faults[place] = fault
        except SqsRefused as error:
            if len(entries) > 1:
                return [self._settle(operation, [entry])[0] for entry in entries]
            log.debug("%s", error)
            return [False]
        busy = next((fault for fault in faults if fault and fault.is_busy), None)
        if busy:
            # A caller that insists repeats the whole call, which is idempotent.
            raise SourceUnavailable(f"SQS queue {self._address.name}: {busy.code}: {busy.text}")
        return [fault is None for fault in faults]

    def _batch(self, operation: str, entries: Sequence[dict[str, Any]]) -> list[_Fault | None]:
        numbered = [{"Id": str(place), **entry} for place, entry in enumerate(entries)]
        answer = self._call(operation, Entries=numbered)
        done = {entry["Id"] for entry in answer.get("Successful") or ()}
        failed = {entry["Id"]: entry for entry in answer.get("Failed") or ()}
        faults: list[_Fault | None] = []
        for entry in numbered:
            if entry["Id"] in failed:
                told = failed[entry["Id"]]
                code = str(told.get("Code", ""))
                by_sqs = not told.get("SenderFault", True) or is_busy(code)
                faults.append(_Fault(code, str(told.get("Message") or "")[:300], by_sqs))
            else:
                faults.append(None if entry["Id"] in done else _Fault("InternalError", "no result for it", True))
        return faults

    def _call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        client = self._client
        if client is None:
            raise SourceUnavailable(f"SQS queue {self._address.name} is not open")
        try:
            answer: dict[str, Any] = getattr(client, operation)(QueueUrl=self._url, **parameters)
        except Exception as error:
            raise self._translated(error) from error
        return answer

    def _translated(self, error: Exception) -> SourceError:
        what = translated(error, self._address.name)
        if isinstance(what, NotAllowed):
            # Credentials may be corrected while we run, and a session reads them only once.
            _forget_session()
        return what


@dataclass(frozen=True, slots=True)
class _Fault:
    """Why one entry of a batch was not done."""

    code: str
    text: str
    is_busy: bool


def _new_client(region: str, endpoint: str, connections: int) -> Any:
    global _session
    config = Config(
        parameter_validation=False,
        connect_timeout=CONNECT_TIMEOUT_S,
        read_timeout=CALL_TIMEOUT_S,
        # No retries by boto3: an outage has to be seen, and the coordinator does the waiting.
        retries={"total_max_attempts": 1, "mode": "standard"},
        max_pool_connections=connections,
        tcp_keepalive=True,
        # boto3 builds its own anew for each call, out of thirty parts: a tenth of what the call costs.
        user_agent=f"Boto3/{boto3.__version__} fleet",
    )
    with _session_lock:  # making a session or a client is not safe in two threads at once
        if _session is None:
            # One for all queues: it costs fifty times as much as a client, and the dashboard opens a queue for each
            # look.
            _session = boto3.session.Session()
        named = region or _session.region_name or (_ANY_REGION if endpoint else None)
        return _session.client("sqs", region_name=named, endpoint_url=endpoint or None, config=config)


def _forget_session() -> None:
    global _session
    with _session_lock:
        _session = None
