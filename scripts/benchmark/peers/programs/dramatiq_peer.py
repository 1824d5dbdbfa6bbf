"""Dramatiq: `fill REDIS TARGET TOKEN COUNT GROUPS`; its own command line runs the workers. It has no groups."""

from __future__ import annotations

import os
import sys

import dramatiq  # type: ignore[import-not-found]
from dramatiq.brokers.redis import RedisBroker  # type: ignore[import-not-found]
from messages import messages  # type: ignore[import-not-found]
from post import deliver  # type: ignore[import-not-found]

broker = RedisBroker(url=os.environ["BENCH_REDIS_URL"])
dramatiq.set_broker(broker)
deliver_message = dramatiq.actor(deliver, actor_name="deliver")

if __name__ == "__main__":
    for message in messages(sys.argv[3], sys.argv[4], int(sys.argv[5]), int(sys.argv[6])):
        deliver_message.send(message)
