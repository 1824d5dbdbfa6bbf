"""RQ: `fill REDIS TARGET TOKEN COUNT GROUPS` or `work REDIS`. It has no groups.

SimpleWorker runs jobs in its own process: the default worker forks for each and is several times slower.
"""

from __future__ import annotations

import sys

from messages import messages  # type: ignore[import-not-found]
from post import deliver  # type: ignore[import-not-found]
from redis import Redis
from rq import Queue, SimpleWorker
from rq.serializers import JSONSerializer

CHUNK = 500


def fill(redis_url: str, target: str, token: str, count: int, groups: int) -> None:
    queue = Queue("bench", connection=Redis.from_url(redis_url), serializer=JSONSerializer)
    jobs = [
        Queue.prepare_data(deliver, args=[message], result_ttl=0, description="deliver")
        for message in messages(target, token, count, groups)
    ]
    for start in range(0, len(jobs), CHUNK):
        queue.enqueue_many(jobs[start : start + CHUNK])


def work(redis_url: str) -> None:
    worker = SimpleWorker(["bench"], connection=Redis.from_url(redis_url), serializer=JSONSerializer)
    worker.log_job_description = False
    worker.work(logging_level="WARNING")


if __name__ == "__main__":
    if sys.argv[1] == "fill":
        fill(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), int(sys.argv[6]))
    else:
        work(sys.argv[2])
