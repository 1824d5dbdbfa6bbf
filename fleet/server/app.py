"""Which address is answered by what."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fleet.server import control, monitoring, processing_endpoint, produce, topics
from fleet.server.answers import HANDLERS, Json
from fleet.server.context import Context
from fleet.server.door import Tokens
from fleet.server.guard import Guard


async def index(_: Request) -> Response:
    return Json({"service": "fleet", "addresses": sorted({route.path for route in ROUTES})})


ROUTES = [
    Route("/", index),
    Route("/health", monitoring.health),
    Route("/health/live", monitoring.live),
    Route("/health/ready", monitoring.ready),
    Route("/health/startup", monitoring.startup),
    Route("/metrics", monitoring.prometheus),
    Route("/events", monitoring.events),
    Route("/monitoring/health", monitoring.fleet_health),
    Route("/monitoring/queue-stats", monitoring.queue_stats),
    Route("/monitoring/pool-stats", monitoring.pool_stats),
    Route("/monitoring/in-flight-messages", monitoring.in_flight),
    Route("/monitoring/in-flight-messages/check", monitoring.in_flight_check),
    Route("/monitoring/circuit-breakers", monitoring.circuit_breakers),
    Route("/monitoring/circuit-breakers/{origin:path}/reset", control.reset_breaker, methods=["POST"]),
    Route("/monitoring/standby-status", monitoring.standby_status),
    Route("/monitoring/consumer-health", monitoring.consumer_health),
    Route("/monitoring/groups", monitoring.pool_groups),
    Route("/monitoring/workers", monitoring.workers),
    Route("/monitoring/topics", topics.topics),
    Route("/monitoring/subscriptions", topics.subscriptions),
    Route("/monitoring/pools/{code}", control.put_pool, methods=["PUT"]),
    Route("/warnings", monitoring.warnings),
    Route("/warnings/unacknowledged", monitoring.unacknowledged_warnings),
    Route("/warnings/acknowledge-all", control.acknowledge_all_warnings, methods=["POST"]),
    Route("/warnings/{id}/acknowledge", control.acknowledge_warning, methods=["POST"]),
    Route("/config/reload", control.reload_config, methods=["POST"]),
    Route("/messages", produce.post_messages, methods=["POST"]),
    Route("/topics/{name}/publish", topics.publish, methods=["POST"]),
    Route("/api/seed/messages", produce.post_seed, methods=["POST"]),
    Route(processing_endpoint.PATH, processing_endpoint.process, methods=["POST"]),
]


def make_app(context: Context, tokens: Tokens) -> Starlette:
    app = Starlette(routes=ROUTES, exception_handlers=HANDLERS, middleware=[Middleware(Guard, tokens=tokens)])
    app.router.redirect_slashes = False
    app.state.context = context
    return app
