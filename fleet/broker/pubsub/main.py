"""The Pub/Sub door as a process: wire and run, nothing else."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from fleet.broker.core import Broker
from fleet.broker.pubsub import publisher, subscriber
from fleet.broker.pubsub.rpc import Refusals
from fleet.broker.pubsub.wire import grpc
from fleet.broker.upkeep import Upkeep
from fleet.config.settings import Settings
from fleet.listening import STOP_WITHIN_S, is_loopback, listen
from fleet.process import Heartbeat, Identity, Life, tame_collector
from fleet.state.connect import connected
from fleet.state.registry import Registry

log = logging.getLogger("fleet.pubsub")

ROLE = "pubsub"
MOST_REQUEST_BYTES = 20 * 1024 * 1024
"""Of a publish that Pub/Sub takes, 10 MB are messages."""
_OPTIONS = [
    ("grpc.max_receive_message_length", MOST_REQUEST_BYTES),
    ("grpc.max_send_message_length", -1),
    # Two doors at one port would each have half of the acks that the other waits for.
    ("grpc.so_reuseport", 0),
    # Google's clients ping each 30 s, with a stream or without; gRPC would hang up on whoever does so that often.
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
]


async def serve(settings: Settings) -> int:
    """Answer until SIGTERM. Returns the exit code."""
    chosen = settings.pubsub
    # gRPC does not say in one line why it cannot listen.
    with listen(chosen.host, chosen.port) as free:
        port = int(free.getsockname()[1])
    address = f"[{chosen.host}]:{port}" if ":" in chosen.host else f"{chosen.host}:{port}"
    tame_collector()
    identity, life, over = Identity.new(ROLE), Life(), asyncio.Event()
    async with connected(settings.redis.url) as client:
        broker = Broker(client, url=settings.redis.url)

        def describe() -> dict[str, Any]:
            return {"address": address}

        heartbeat = Heartbeat(
            registry=Registry(client),
            identity=identity,
            ttl_ms=settings.lease.ttl_ms,
            describe=describe,
            counters=broker.counters,
        )
        await heartbeat.beat()
        server = _server(broker, over)
        server.add_insecure_port(address)
        async with Upkeep(broker).running():
            await server.start()
            life.spawn(asyncio.get_running_loop().create_task(heartbeat.run()))
            log.info("%s answers at %s", identity.name, address)
            if not is_loopback(chosen.host):
                log.warning("whoever reaches %s may publish and pull: this door asks nobody who he is", address)
            await life.wait()
            # First nobody is let in, then streams end: a client opens its stream anew at once, and what a server that
            # stops says of that, CANCELLED, would make it give up.
            stopping = asyncio.get_running_loop().create_task(server.stop(STOP_WITHIN_S))
            await asyncio.sleep(0)
            over.set()
            await stopping
            await broker.close()
            await life.cancel()
        await heartbeat.leave()
    log.info("%s has stopped", identity.name)
    return life.exit_code()


def _server(broker: Broker, over: asyncio.Event) -> Any:
    server = grpc.aio.server(options=_OPTIONS)
    services = {
        publisher.SERVICE: publisher.Publisher(broker).handlers(),
        subscriber.SERVICE: subscriber.Subscriber(broker, over).handlers(),
    }
    known = [grpc.method_handlers_generic_handler(name, handlers) for name, handlers in services.items()]
    # gRPC asks them in turn: what none of the services knows is refused with a reason.
    server.add_generic_rpc_handlers((*known, Refusals()))
    return server


def run(settings: Settings) -> int:
    return asyncio.run(serve(settings))
