"""Topics and subscriptions over HTTP: publish, and see how they stand."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from fleet.broker.errors import InvalidArgument
from fleet.operate import topics as views
from fleet.operate.publish import message_of
from fleet.server import context
from fleet.server.answers import Json, only_fields, read_json


async def publish(request: Request) -> Response:
    """{"messages": [{"data" or "dataBase64", "attributes", "orderingKey"}]}: all of them or none, and their ids."""
    name, body = request.path_params["name"], await read_json(request)
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
        raise InvalidArgument('the body must be {"messages": [...]}')
    only_fields(body, ("messages",))
    messages = []
    for place, given in enumerate(body["messages"]):
        try:
            messages.append(message_of(given))
        except InvalidArgument as error:
            raise InvalidArgument(f"message {place}: {error.message}") from None
    return Json({"topic": name, "messageIds": await context.of(request).broker.publish(name, messages)})


async def topics(request: Request) -> Response:
    return Json(await views.topics_json(context.of(request).broker))


async def subscriptions(request: Request) -> Response:
    return Json(await views.subscriptions_json(context.of(request).broker))
