"""What a coordinator has one of, for all the queues that it owns."""

from __future__ import annotations

from dataclasses import dataclass

from coordinator.directory import Directory
from coordinator.rooms import Rooms
from fleet.alarms import Alarms
from fleet.clock import Clock
from fleet.state.connect import Client
from fleet.state.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    name: str
    """The coordinator's own, in the fleet."""
    client: Client
    registry: Registry
    directory: Directory
    rooms: Rooms
    alarms: Alarms
    clock: Clock
