"""What the tests of `fleet explain` ask with, and what they ask about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleet.config.router import PoolConfig, QueueConfig, RouterConfig
from fleet.operate.explain import Explainer
from fleet.operate.explanation import Explanation
from fleet.operate.views import DepthNow
from fleet.sources.base import Depth
from fleet.state.pool import Pool
from fleet.state.queue import Queue
from tests.state.stage import TTL_MS, Stage, in_group, submit

HTTP_TIMEOUT_MS = 60_000
EMPTY: DepthNow = (Depth(0, 0, None), "")
FIELDS = ["subject", "state", "waitsFor", "until", "details"]


async def explain(
    stage: Stage,
    subject: str,
    *,
    uri: str = "nats://h/s/c",
    pools: tuple[str, ...] = ("P",),
    pool: str | None = None,
    depth: DepthNow = EMPTY,
) -> Explanation:
    """`depth`: of a queue that shows nothing else of itself."""

    async def depths(queues: Sequence[QueueConfig]) -> list[DepthNow]:
        return [depth for _ in queues]

    config = RouterConfig(
        queues=(QueueConfig(name="q", uri=uri),),
        pools=tuple(PoolConfig(code=code, concurrency=1, capacity=50) for code in pools),
    )
    explainer = Explainer(client=stage.client, config=config, now_ms=str(stage.now_ms), pool=pool, depths=depths)
    found = await explainer.explain(subject)
    assert list(found.to_json()) == FIELDS
    assert all(sentence.endswith(".") or ": http" in sentence for sentence in found.details), found.details
    return found


async def served(stage: Stage, **settings: Any) -> Pool:
    """A pool that is known, with a worker that lives."""
    pool = await stage.pool(**settings)
    registry = stage.registry()
    await registry.add_pools({"P"})
    beat = {"role": "worker", "name": "w", "pools": ["P*"], "httpTimeoutMs": HTTP_TIMEOUT_MS}
    await registry.beat("w", beat, ttl_ms=10 * TTL_MS)
    return pool


async def taken(stage: Stage, pool: Pool, count: int = 1) -> Queue:
    """Messages of group g, tracked and in the pool."""
    queue = await stage.queue()
    messages = in_group(count)
    rows = [(m.broker_id, m.message_id, "P", m.group, "h") for m in messages]
    for message, tracking in zip(messages, await queue.track(rows), strict=True):
        message.token = tracking.token
    await submit(pool, messages)
    return queue
