"""What the answers are made from."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from fleet.broker.core import Broker
from fleet.process import Identity
from fleet.processing.process import Processor
from fleet.server.aside import Looks
from fleet.server.breakers import BreakerBoard
from fleet.server.depths import Depths
from fleet.server.due import DueNow
from fleet.server.publishers import Publishers
from fleet.server.pulse import Pulse
from fleet.server.snapshot import Snapshots
from fleet.state.connect import Client


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    client: Client
    identity: Identity
    pulse: Pulse
    depths: Depths
    looks: Looks
    snapshots: Snapshots
    publishers: Publishers
    broker: Broker
    breakers: BreakerBoard
    processor: Processor
    due: DueNow


def of(request: Request) -> Context:
    context: Context = request.app.state.context
    return context
