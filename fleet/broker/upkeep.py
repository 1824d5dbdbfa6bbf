"""What one process does for all topics: what others left undone is finished, and what grows old is dropped."""

from __future__ import annotations

import logging

from fleet.broker.by_lease import ByLease
from fleet.broker.core import Broker
from fleet.state.keys import BrokerKeys

log = logging.getLogger("fleet.broker")


class Upkeep(ByLease):
    def __init__(self, broker: Broker) -> None:
        super().__init__(
            broker.client,
            BrokerKeys.sweeper,
            each_second=lambda: broker.sweeper.carry(),
            each_minute=lambda: broker.sweeper.sweep(),
            log=log,
            what="topics",
        )
