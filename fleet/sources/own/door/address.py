"""The address of a queue of the SQS door: `fleet://sqs/QUEUE`."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from fleet.broker.sqs import names
from fleet.errors import InvalidConfig
from fleet.sources.own.address import DOOR


@dataclass(frozen=True, slots=True)
class DoorAddress:
    queue: str

    @property
    def is_fifo(self) -> bool:
        """The door allows this ending for FIFO queues alone."""
        return names.is_fifo(self.queue)

    @property
    def uri(self) -> str:
        return f"{DOOR}{self.queue}"


def is_of_door(uri: str) -> bool:
    """Whether it names a queue of the SQS door. It may still name it wrongly: `parse_address` says so."""
    return uri.lower().startswith(DOOR)


def parse_address(uri: str) -> DoorAddress:
    name = unquote(uri[len(DOOR) :]) if is_of_door(uri) else ""
    if not names.is_name(name):
        raise InvalidConfig(f"{DOOR}QUEUE needs the name of an SQS queue: letters, digits, - and _, at most 80")
    return DoorAddress(name)
