"""GET: what monitors and people read, in the public shapes."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from fleet.metrics.exposition import CONTENT_TYPE
from fleet.operate import views
from fleet.server import context, metrics
from fleet.server.answers import Json, encoded, flag, query_number
from fleet.state import observe, present
from fleet.state.connect import Client
from fleet.state.groups import GroupView, groups
from fleet.state.registry import Registry
from fleet.state.warnings import MOST, Warnings

_LISTENERS = 100
_GROUP_STATES = {"leased": "PROCESSING", "lapsed": "LAPSED", "waiting": "WAITING", "ready": "QUEUED"}

# Probes --------------------------------------------------------------------------------------------


async def health(request: Request) -> Response:
    return Json((await context.of(request).snapshots.health()).to_json())


async def live(_: Request) -> Response:
    """We answer, so we live."""
    return Json({"status": "UP"})


async def ready(request: Request) -> Response:
    is_ready = context.of(request).pulse.ready
    return Json({"status": "READY" if is_ready else "NOT_READY", "redisAvailable": is_ready}, 200 if is_ready else 503)


async def startup(request: Request) -> Response:
    started = context.of(request).pulse.started
    return Json({"status": "STARTED" if started else "STARTING"}, 200 if started else 503)


# The fleet -----------------------------------------------------------------------------------------


async def fleet_health(request: Request) -> Response:
    """Like /health, with the names of what is wrong: for callers with a token."""
    now = await context.of(request).snapshots.latest()
    return Json({**now.health.to_json(), "problems": now.status.problems})


async def queue_stats(request: Request) -> Response:
    own = context.of(request)
    config = (await views.configuration(own.client))[1]
    queues = await views.queues_now(own.client, config, depths=own.depths)
    return Json({queue.view.name: views.queue_json(queue) for queue in queues})


async def pool_stats(request: Request) -> Response:
    async def rows(client: Client) -> bytes:
        return encoded({pool.code: views.pool_json(pool) for pool in await observe.pools(client)})

    return Response(await context.of(request).looks.ask(rows), media_type="application/json")


async def in_flight(request: Request) -> Response:
    own, asked = context.of(request), request.query_params
    limit = query_number(request, "limit", 1000, most=100_000)
    names = await _queue_names(request)
    if "queueId" in asked:
        names = [name for name in names if name == asked["queueId"]]
    if "messageId" in asked:
        return Json(await views.in_flight_of_message_json(own.client, names, asked["messageId"]))
    rows = views.in_flight_json(own.client, names, pool=asked.get("poolCode"), limit=limit)
    return Json([row async for row in rows])


async def in_flight_check(request: Request) -> Response:
    message_id = request.query_params.get("messageId", "")
    if not message_id:
        raise HTTPException(400, "messageId: is missing")
    client = context.of(request).client
    rows = await views.in_flight_of_message_json(client, await _queue_names(request), message_id)
    return Json({"messageId": message_id, "inPipeline": bool(rows), "messages": rows})


async def _queue_names(request: Request) -> list[str]:
    config = (await views.configuration(context.of(request).client))[1]
    return sorted(queue.name for queue in config.queues)


async def circuit_breakers(request: Request) -> Response:
    return Json(await context.of(request).breakers.list())


async def standby_status(request: Request) -> Response:
    """The coordinator that leads, and beside it all of them: this server itself is not one."""
    client = context.of(request).client
    leading = await views.leader_json(client)
    processes = await views.processes_json(client)
    coordinators = [
        {
            "instanceId": row["name"],
            "role": "PRIMARY" if row["name"] == leading["leader"] else "STANDBY",
            "ownedQueues": row["queues"],
        }
        for row in processes
        if row["role"] == "coordinator"
    ]
    return Json({**leading, "instances": coordinators})


async def consumer_health(request: Request) -> Response:
    return Json(await views.consumers_json(context.of(request).client))


async def pool_groups(request: Request) -> Response:
    """The groups of one pool; without a pool, how many each pool has."""
    client, code = context.of(request).client, request.query_params.get("pool")
    if code is None:
        return Response(await context.of(request).looks.ask(_groups_of_each), media_type="application/json")
    if code not in await observe.pool_settings(client, [code]):
        raise HTTPException(404, f"there is no pool {code}")
    now_ms = await Registry(client).clock_ms()
    found = await groups(client, code, limit=query_number(request, "limit", 100, most=10_000))
    return Json([_group(view, now_ms) for view in found])


async def _groups_of_each(client: Client) -> bytes:
    return encoded(
        {
            pool.code: {"processing": pool.leases, "queued": pool.ready, "waiting": pool.later}
            for pool in await observe.pools(client)
        }
    )


def _group(view: GroupView, now_ms: int) -> dict[str, Any]:
    return {
        "messageGroupId": view.name,
        "state": _GROUP_STATES[view.state],
        "messages": view.queued,
        "nextMessageId": view.head.message_id,
        "remainingMs": None if view.until_ms is None else max(0, view.until_ms - now_ms),
        "worker": view.worker or None,
        "epoch": view.epoch or None,
    }


async def workers(request: Request) -> Response:
    return Json(views.workers_json(await present.processes(context.of(request).client)))


# Warnings ------------------------------------------------------------------------------------------


async def warnings(request: Request) -> Response:
    return await _warnings(request, unacknowledged=flag(request, "unacknowledged"))


async def unacknowledged_warnings(request: Request) -> Response:
    return await _warnings(request, unacknowledged=True)


async def _warnings(request: Request, *, unacknowledged: bool) -> Response:
    limit = query_number(request, "limit", 1000, most=MOST)
    found = await Warnings(context.of(request).client).list(unacknowledged=unacknowledged, limit=limit)
    return Json([warning.to_json() for warning in found])


# Streams and texts ---------------------------------------------------------------------------------


async def events(request: Request) -> Response:
    snapshots = context.of(request).snapshots
    if snapshots.listeners >= _LISTENERS:
        raise HTTPException(503, f"already {_LISTENERS} listeners")
    return StreamingResponse(snapshots.events(), media_type="text/event-stream")


async def prometheus(request: Request) -> Response:
    own = context.of(request)
    page = await metrics.exposition(own.looks, depths=own.depths, breakers=own.breakers, due=await own.due())
    return Response(page, headers={"content-type": CONTENT_TYPE})
