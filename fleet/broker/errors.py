"""What the broker refuses, with the number that seed 001 and gRPC give it, and a message for people.

BrokerError
├── InvalidArgument       3   can never be accepted as it is
│   └── InvalidAckId          malformed, or another showing of the message counts by now
├── NotFound              5
│   ├── TopicNotFound
│   └── SubscriptionNotFound
├── AlreadyExists         6   the name is taken by something that differs
├── Exhausted             8   a limit is reached; it may be lower later
├── FailedPrecondition    9   the state of things forbids it, whatever the arguments
├── Unavailable          14   nothing was accepted: repeat it
├── Unsure                2   the answer was lost: it may have been accepted
└── DataLoss             15   what is stored cannot be read
"""

from __future__ import annotations

from typing import ClassVar

from fleet.errors import FleetError


class BrokerError(FleetError):
    """The broker refused the call."""

    code: ClassVar[int] = 2

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = str(self)


class InvalidArgument(BrokerError):
    """The call can never be accepted as it is."""

    code = 3


class InvalidAckId(InvalidArgument):
    """The ack ID names no showing that counts."""

    def __init__(self, ack_id: object) -> None:
        super().__init__(f"Invalid ack ID: {ack_id}")


class NotFound(BrokerError):
    """There is nothing of that name."""

    code = 5


class TopicNotFound(NotFound):
    """There is no topic of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Topic not found: {name}")


class SubscriptionNotFound(NotFound):
    """There is no subscription of that name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"Subscription not found: {name}")


class AlreadyExists(BrokerError):
    """The name is taken by something that differs."""

    code = 6


class Exhausted(BrokerError):
    """A limit is reached."""

    code = 8


class FailedPrecondition(BrokerError):
    """The state of things forbids the call."""

    code = 9


class Unavailable(BrokerError):
    """The broker cannot be reached, and nothing was accepted."""

    code = 14


# Not Unavailable: whoever repeats on that, and rightly so, would publish twice without knowing it.
class Unsure(BrokerError):
    """The answer was lost: the messages may have been published."""


class DataLoss(BrokerError):
    """What is stored is not a message."""

    code = 15
