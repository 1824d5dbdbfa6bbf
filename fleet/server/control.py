"""PUT and POST by operators: each changes something at once and answers with the result."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from fleet.config.router import MAX_NUMBER
from fleet.server import context
from fleet.server.answers import Json, log, only_fields, read_json, whole_number
from fleet.state.by_hand import NO_RATE, PoolByHand
from fleet.state.registry import Registry
from fleet.state.reload import request_reload
from fleet.state.warnings import Warnings

_POOL_FIELDS = ("concurrency", "rateLimitPerMinute")


async def put_pool(request: Request) -> Response:
    code = request.path_params["code"]
    concurrency, rate = _pool_change(await read_json(request))
    pool = await PoolByHand(context.of(request).client, code).adjust(concurrency=concurrency, rate=rate)
    if pool.tag == "unknown":
        raise HTTPException(404, f"there is no pool {code}")
    log.info(
        "pool %s: concurrency %d, rate limit %s, until the next revision of the configuration",
        code, pool.concurrency, pool.rate_limit_per_minute or "none",
    )  # fmt: skip
    return Json(
        {
            "poolCode": code,
            "concurrency": pool.concurrency,
            "rateLimitPerMinute": pool.rate_limit_per_minute,
            "maxQueueCapacity": pool.capacity,
        }
    )


def _pool_change(body: Any) -> tuple[int | None, int | None]:
    """Concurrency and rate; None leaves one as it is."""
    if not isinstance(body, dict) or not body:
        raise HTTPException(400, f"the body must be an object with {' or '.join(_POOL_FIELDS)}")
    only_fields(body, _POOL_FIELDS)
    concurrency = rate = None
    if "concurrency" in body:
        concurrency = whole_number("concurrency", body["concurrency"], least=1, most=MAX_NUMBER)
    if "rateLimitPerMinute" in body:
        given = body["rateLimitPerMinute"]
        rate = NO_RATE if given is None else whole_number("rateLimitPerMinute", given, least=1, most=MAX_NUMBER)
    return concurrency, rate


async def reset_breaker(request: Request) -> Response:
    origin = request.path_params["origin"]
    if not await context.of(request).breakers.reset(origin):
        raise HTTPException(404, f"no breaker of {origin} is open")
    return Json({"origin": origin, "state": "CLOSED"})


async def reload_config(request: Request) -> Response:
    """This only asks: the syncer reads its sources within a second, and says in its log what came of it."""
    client = context.of(request).client
    registry = Registry(client)
    if not any(record.get("role") == "syncer" for record in await registry.processes()):
        raise HTTPException(503, "no syncer is running: nobody would read the configuration")
    await request_reload(client)
    return Json({"requested": True, "revision": await registry.revision()}, 202)


async def acknowledge_warning(request: Request) -> Response:
    id_ = request.path_params["id"]
    if not await Warnings(context.of(request).client).acknowledge(id_):
        raise HTTPException(404, f"there is no warning {id_}")
    return Json({"id": id_, "acknowledged": True})


async def acknowledge_all_warnings(request: Request) -> Response:
    return Json({"acknowledged": await Warnings(context.of(request).client).acknowledge_all()})
