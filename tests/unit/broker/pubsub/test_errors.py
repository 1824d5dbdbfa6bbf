"""Errors of the broker as gRPC's status of the same number."""

from __future__ import annotations

import grpc
import pytest

from fleet.broker import errors
from fleet.broker.pubsub.errors import Unsupported, status_of

EVERY = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, errors.BrokerError)]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.InvalidAckId("x"), grpc.StatusCode.INVALID_ARGUMENT),
        (errors.TopicNotFound("x"), grpc.StatusCode.NOT_FOUND),
        (errors.AlreadyExists("x"), grpc.StatusCode.ALREADY_EXISTS),
        (errors.Exhausted("x"), grpc.StatusCode.RESOURCE_EXHAUSTED),
        (errors.FailedPrecondition("x"), grpc.StatusCode.FAILED_PRECONDITION),
        (errors.Unavailable("x"), grpc.StatusCode.UNAVAILABLE),
        (errors.Unsure("x"), grpc.StatusCode.UNKNOWN),
        (errors.DataLoss("x"), grpc.StatusCode.DATA_LOSS),
        (Unsupported("x"), grpc.StatusCode.UNIMPLEMENTED),
    ],
)
def test_a_status_is_the_number_of_the_error(error: errors.BrokerError, status: grpc.StatusCode) -> None:
    assert status_of(error) is status


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_every_error_has_a_status(kind: type[errors.BrokerError]) -> None:
    assert status_of(kind("x")) is not grpc.StatusCode.OK
