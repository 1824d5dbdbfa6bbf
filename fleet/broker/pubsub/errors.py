"""What the door cannot do, and how what the broker refuses reaches a client: as gRPC's status of the same number."""

from __future__ import annotations

from fleet.broker.errors import BrokerError
from fleet.broker.pubsub.wire import grpc

_STATUSES = {status.value[0]: status for status in grpc.StatusCode}


class Unsupported(BrokerError):
    """Pub/Sub can do this, and this door cannot."""

    code = 12


def status_of(error: BrokerError) -> grpc.StatusCode:
    return _STATUSES[error.code]
