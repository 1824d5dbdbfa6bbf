"""Celery: `fill REDIS TARGET TOKEN COUNT GROUPS`; its own command line runs the workers. It has no groups."""

from __future__ import annotations

import os
import sys

from celery import Celery  # type: ignore[import-not-found]
from messages import messages  # type: ignore[import-not-found]
from post import deliver  # type: ignore[import-not-found]

app = Celery("bench", broker=os.environ["BENCH_REDIS_URL"])
app.conf.update(
    task_default_queue="bench",
    task_ignore_result=True,
    # Acknowledge after the POST, as every other peer and Fleet do; prefetch deep, as its guide says for short tasks.
    task_acks_late=True,
    worker_prefetch_multiplier=64,
    task_serializer="json",
    accept_content=["json"],
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
)
# Retried later like any webhook; without it a job that raised would be gone, and the queue look drained.
deliver_message = app.task(deliver, name="deliver", autoretry_for=(Exception,), retry_kwargs={"countdown": 30})

if __name__ == "__main__":
    with app.producer_pool.acquire(block=True) as producer:
        for message in messages(sys.argv[3], sys.argv[4], int(sys.argv[5]), int(sys.argv[6])):
            deliver_message.apply_async((message,), producer=producer)
