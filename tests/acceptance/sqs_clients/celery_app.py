"""A Celery application whose broker is an SQS. Its tasks write down that they ran: one line each, appended whole."""

from __future__ import annotations

import os
import sys
import time

from celery import Celery

VISIBILITY_S = 5

app = Celery("clients", broker=os.environ["BROKER_URL"])
app.conf.update(
    task_default_queue=os.environ["QUEUE"],
    task_ignore_result=True,
    # What a worker that dies was running is not acked, and comes again.
    task_acks_late=True,
    worker_prefetch_multiplier=4,
    worker_enable_remote_control=False,
    broker_connection_retry_on_startup=True,
    broker_transport_options={
        "is_secure": False,
        "region": "us-east-1",
        "visibility_timeout": VISIBILITY_S,
        "wait_time_seconds": 2,
        "polling_interval": 0.1,
    },
)


@app.task(name="note")  # type: ignore[untyped-decorator]
def note(number: int, journal: str) -> None:
    time.sleep(0.01)  # a task takes a while, so that one is always under way
    line = f"{number}\n".encode()
    file = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(file, line)
    finally:
        os.close(file)


if __name__ == "__main__":
    # COUNT JOURNAL: send so many tasks.
    with app.amqp.producer_pool.acquire(block=True) as producer:
        for one in range(int(sys.argv[1])):
            note.apply_async((one, sys.argv[2]), producer=producer)
