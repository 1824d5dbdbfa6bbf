"""What a call costs its queue: asked before anything is done, and nothing is done if there is not enough."""

from __future__ import annotations

import math

from fleet.broker.sqs import throttle
from fleet.broker.sqs.call import Call
from fleet.broker.sqs.catalogue import Queue


async def charged(queue: Queue, call: Call) -> None:
    """SqsError `Throttling` if its bucket has not enough for this call, which then costs nothing."""
    if call.is_charged or queue.attributes.throttle == throttle.UNSET:
        return
    cost = throttle.charge_of(call.verb, call.params)
    if cost is None:
        return
    action, n = cost
    bucket = throttle.bucket_of(queue.attributes.throttle, action)
    if bucket is None:
        return
    _, wait_ms = await queue.charge(bucket.name, n, capacity=bucket.capacity, refill=bucket.refill)
    if wait_ms:
        queue.counts.throttled(bucket.name)
        after_s = min(throttle.LONGEST_RETRY_S, max(1, math.ceil(wait_ms / 1000)))
        raise throttle.rejection(queue.name, action, after_s)
    call.is_charged = True
