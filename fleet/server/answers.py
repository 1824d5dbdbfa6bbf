"""Answers: JSON always, errors as {"error": "…"}, and none of them quotes a secret."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from fleet.broker.errors import (
    AlreadyExists,
    BrokerError,
    Exhausted,
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    Unavailable,
    Unsure,
)
from fleet.errors import FleetError, InvalidConfig, InvalidMessage, JobStoreError, SourceError, StateError

log = logging.getLogger("fleet.server")

MAX_BODY_BYTES = 1024 * 1024
BODY_WITHIN_S = 30.0
encoded = msgspec.json.Encoder().encode


class Json(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return encoded(content)


def error(status: int, text: str, *, headers: Mapping[str, str] | None = None) -> Json:
    return Json({"error": text}, status_code=status, headers=headers)


async def on_http_error(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, HTTPException)
    return error(problem.status_code, problem.detail, headers=problem.headers)


async def on_fleet_error(_: Request, problem: Exception) -> Response:
    match problem:
        case StateError() | SourceError() | JobStoreError():
            return error(503, str(problem))
        case InvalidConfig() | InvalidMessage():
            return error(400, str(problem))
        case _:
            return error(500, str(problem))


_STATUS_OF_CODE = {
    InvalidArgument.code: 400,
    NotFound.code: 404,
    AlreadyExists.code: 409,
    FailedPrecondition.code: 409,
    Exhausted.code: 503,
    Unavailable.code: 503,
    Unsure.code: 503,
}


async def on_broker_error(_: Request, problem: Exception) -> Response:
    """With the code that the broker gives it everywhere."""
    assert isinstance(problem, BrokerError)
    return Json({"error": problem.message, "code": problem.code}, _STATUS_OF_CODE.get(problem.code, 500))


async def on_unforeseen(_: Request, __: Exception) -> Response:
    # uvicorn logs it; its words are for us alone.
    return error(500, "something went wrong; the server's log says what")


HANDLERS: dict[Any, Any] = {
    HTTPException: on_http_error,
    BrokerError: on_broker_error,
    FleetError: on_fleet_error,
    Exception: on_unforeseen,
}


async def read_json(request: Request, *, optional: bool = False) -> Any:
    """The body of a request. `optional`: None if there is none."""
    body = b""
    try:
        async with asyncio.timeout(BODY_WITHIN_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise HTTPException(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
    except TimeoutError:
        raise HTTPException(408, f"the body did not end within {BODY_WITHIN_S:g} s") from None
    except ClientDisconnect:
        raise HTTPException(400, "the body did not end") from None
    if not body and optional:
        return None
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise HTTPException(400, f"the body is not JSON: {problem}") from None


def only_fields(given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Refuse unknown fields: a misspelt one must not silently have no effect."""
    strangers = sorted(set(given) - set(known))
    if strangers:
        raise HTTPException(400, f"{strangers[0][:60]}: unknown field; there are: {', '.join(known)}")


def whole_number(name: str, value: Any, *, least: int, most: int, in_query: bool = False) -> int:
    """A number in a body, or in a query where everything is text."""
    if in_query and isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 15:
        value = int(value)
    # bool is an int to Python, but not to people.
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise HTTPException(400, f"{name}: must be an integer from {least} to {most}")
    return value


def query_number(request: Request, name: str, default: int, *, most: int) -> int:
    return whole_number(name, request.query_params.get(name, default), least=1, most=most, in_query=True)


def flag(request: Request, name: str) -> bool:
    value = request.query_params.get(name, "false").lower()
    if value not in ("", "true", "false", "1", "0"):
        raise HTTPException(400, f"{name}: must be true or false")
    return value in ("", "true", "1")
