"""What goes over the line to ActiveMQ: frames as bytes, and what a copy keeps of its message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fleet.sources.activemq.address import Address
from fleet.sources.base import Outgoing

ID, COUNT, GROUP = "FleetId", "FleetCount", "FleetGroup"
"""Our own headers: on a copy, the id of its original and how often that was received; on any message, its group.

The broker keeps JMSXGroupID for itself and shows it to no STOMP consumer, so the group is sent twice.
"""
JMS_GROUP = "JMSXGroupID"
DELAY = "AMQ_SCHEDULED_DELAY"
HEARTBEAT = b"\n"

_NOT_COPIED = frozenset(
    {
        "ack",
        "content-length",
        "destination",
        "message-id",
        "original-destination",
        "persistent",
        "receipt",
        "redelivered",
        "scheduledJobId",
        "subscription",
        "transaction",
        "AMQ_SCHEDULED_CRON",
        "AMQ_SCHEDULED_PERIOD",
        "AMQ_SCHEDULED_REPEAT",
        DELAY,
    }
)
_ESCAPES = str.maketrans({"\\": "\\\\", "\r": "\\r", "\n": "\\n", ":": "\\c"})


@dataclass(frozen=True, slots=True)
class StompCommand:
    """A frame on its way to the broker."""

    name: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def encoded(self, receipt: str = "") -> bytes:
        # CONNECT is the one frame whose headers are not escaped: a password with a colon goes as it is.
        plain = self.name == "CONNECT"
        lines = [self.name]
        for key, value in self.headers.items():
            lines.append(f"{key}:{value}" if plain else f"{key.translate(_ESCAPES)}:{value.translate(_ESCAPES)}")
        if receipt:
            lines.append(f"receipt:{receipt}")
        return "\n".join(lines).encode() + b"\n\n" + self.body + b"\0"


def ack(ack_id: str) -> StompCommand:
    return StompCommand("ACK", {"id": ack_id})


def subscribe(address: Address) -> StompCommand:
    return StompCommand(
        "SUBSCRIBE",
        {
            "id": "fleet",
            "destination": f"/queue/{address.queue}",
            "ack": "client-individual",
            "activemq.prefetchSize": str(address.prefetch),
        },
    )


def send(queue: str, message: Outgoing) -> StompCommand:
    headers = {
        "destination": f"/queue/{queue}",
        "persistent": "true",
        # Makes it a BytesMessage: the broker does not try to read the body as text.
        "content-length": str(len(message.body)),
    }
    if message.group:
        headers[JMS_GROUP] = headers[GROUP] = message.group
    if message.delay_ms:
        headers[DELAY] = str(message.delay_ms)
    return StompCommand("SEND", headers, message.body)


def refusal(message: Outgoing) -> str | None:
    """Why a message cannot even be written as a frame."""
    if message.group:
        if "\0" in message.group:
            return "group holds a NUL"
        try:
            message.group.encode()
        except UnicodeEncodeError:
            return "group is not valid text"
    if message.delay_ms < 0:
        return "delay is negative"
    return None


def copy_of(
    queue: str, headers: Mapping[str, str], body: bytes, *, broker_id: str, count: int, delay_ms: int
) -> StompCommand:
    """The same message once more, to come after a delay: its body, its group, its own headers."""
    copied = {key: value for key, value in headers.items() if key not in _NOT_COPIED}
    if copied.get("expires") == "0":
        del copied["expires"]
    copied |= {
        "destination": f"/queue/{queue}",
        "persistent": "true",
        ID: broker_id,
        COUNT: str(count),
        DELAY: str(delay_ms),
    }
    if GROUP in headers:
        copied[JMS_GROUP] = headers[GROUP]
    if "content-length" in headers or b"\0" in body:
        copied["content-length"] = str(len(body))
    return StompCommand("SEND", copied, body)
