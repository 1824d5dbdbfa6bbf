"""Handlers of gRPC around functions that know nothing of it, and what is refused in gRPC's words."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from fleet.broker.errors import BrokerError
from fleet.broker.pubsub.errors import Unsupported, status_of
from fleet.broker.pubsub.wire import grpc
from fleet.waiting import end

T = TypeVar("T")
Handlers = Mapping[str, Any]
"""Of one service, by the name of the call."""
_REFUSED = {
    "Snapshot": "snapshots are not supported: acked messages are not kept. Seek to a time instead",
    "Schema": "schemas are not supported: messages are bytes",
    "Iam": "IAM is not supported: whoever reaches this door may use it",
    "ModifyPushConfig": "push_config is not supported: the router pushes (docs/broker.md, Push)",
    "DetachSubscription": "a subscription cannot be detached: delete it",
}


def unary(verb: Callable[[Any], Awaitable[Any]], asked: Any, told: Any) -> Any:
    """`verb` gets the request and returns the answer."""
    return timed(lambda request, _left_s: verb(request), asked, told)


def timed(verb: Callable[[Any, float | None], Awaitable[Any]], asked: Any, told: Any) -> Any:
    """`verb` gets the request and how many seconds the client waits, None for as long as it takes."""

    async def answer(request: Any, context: Any) -> Any:
        try:
            return await verb(request, context.time_remaining())
        except BrokerError as error:
            await context.abort(status_of(error), error.message)

    return grpc.unary_unary_rpc_method_handler(answer, asked.FromString, told.SerializeToString)


def stream(verb: Callable[[AsyncIterator[Any], Any], Awaitable[None]], asked: Any, told: Any) -> Any:
    """`verb` gets the requests, and what writes answers."""

    async def answer(requests: AsyncIterator[Any], context: Any) -> None:
        try:
            await verb(requests, context.write)
        except BrokerError as error:
            await context.abort(status_of(error), error.message)

    return grpc.stream_stream_rpc_method_handler(answer, asked.FromString, told.SerializeToString)


class Refusals(grpc.GenericRpcHandler):  # type: ignore[misc]
    """For every other call: UNIMPLEMENTED, with the reason."""

    def service(self, call: Any) -> Any:
        name = call.method.rpartition("/")[2]
        why = next((why for word, why in _REFUSED.items() if word in name), f"{name} is not supported")

        async def refuse(_request: bytes, context: Any) -> None:
            await context.abort(status_of(Unsupported()), why)

        return grpc.unary_unary_rpc_method_handler(refuse)


async def unless(over: asyncio.Event, job: Coroutine[Any, Any, T]) -> T | None:
    """What it brings, or None if that event comes before: it is cancelled then."""
    loop = asyncio.get_running_loop()
    working, ending = loop.create_task(job), loop.create_task(over.wait())
    try:
        await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        await end((working, ending))
