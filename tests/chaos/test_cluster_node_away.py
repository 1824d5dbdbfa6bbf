"""One node of a Cluster stops under load, with a whole fleet of real processes: who delivers what meanwhile."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import redis

from fleet.operate.journal import End, Journal, read
from fleet.sources.base import Outgoing
from fleet.sources.open import open_publisher
from fleet.state.keys import FleetKeys, PoolKeys, QueueKeys
from tests.member import Member
from tests.servers.local import RedisCluster, RedisServer, running_redis_cluster
from tests.stage import QUEUE, Stage
from tests.waiting import let_pass, until
from workers.exchange import STALL_MS

CONCURRENCY = 2
GAP_S = 2.0
"""Between two deliveries of a pool that never stops, on a busy machine; a call that hangs takes five."""
RESUMES_S = 5.0
EACH = 80
"""Messages a pool: with that latency each has work for twice as long as the node is away."""
SIZES = [
    pytest.param(5, 250, id="short"),
    pytest.param(30, 1_200, id="whole", marks=pytest.mark.long),
]

FED = [
    pytest.param(8, 100, id="short"),
    pytest.param(30, 100, id="whole", marks=pytest.mark.long),
]
HEIR_S = 6.5
"""A dead owner's lease lapses, and its heir asks the node that hangs, once."""


class House:
    """A fleet on a Cluster, with four pools on each of its nodes."""

    def __init__(self, directory: Path, cluster: RedisCluster) -> None:
        self.cluster = cluster
        self.stage = Stage(directory, cluster.nodes[0], visibility_s=60, far_redis_url=cluster.url)
        self.client = redis.RedisCluster(host="127.0.0.1", port=cluster.nodes[0].port, decode_responses=True)
        self.pools: dict[int, list[str]] = defaultdict(list)
        codes = (f"P{i}" for i in range(200))
        while sum(map(len, self.pools.values())) < 4 * len(cluster.nodes):
            code = next(codes)
            port = self.node_of(PoolKeys(code).entries)
            if len(self.pools[port]) < 4:
                self.pools[port].append(code)
        self.sent = 0

    def node_of(self, key: str) -> int:
        node = self.client.get_node_from_key(key)  # type: ignore[no-untyped-call]
        assert node is not None
        return int(node.port)

    def node_of_pools_alone(self) -> RedisServer:
        """Neither what there is one of nor the queue is on it."""
        busy = {self.node_of(FleetKeys.config), self.node_of(QueueKeys(QUEUE).tracked)}
        return next(node for node in self.cluster.nodes if node.port not in busy)

    @property
    def all_pools(self) -> list[str]:
        return [code for codes in self.pools.values() for code in codes]

    def start(self, pools: Sequence[str], latency_ms: int, *, capacity: int = 5_000) -> None:
        self.stage.start_endpoint(latency_ms=latency_ms)
        pool = {"concurrency": CONCURRENCY, "capacity": capacity}
        self.stage.write_config([{"code": code, **pool} for code in pools])
        self.stage.start("syncer", "--config", str(self.stage.config))
        self.stage.start("server", "--port", "0")
        for _ in range(2):
            self.stage.start("coordinator")
        self.stage.wait_up()

    def deliver(self) -> None:
        for _ in range(2):
            self.stage.start("worker")
        self.stage.wait_up()

    def owner(self) -> Member | None:
        """The coordinator that has the queue."""
        name = str(self.client.hget(QueueKeys(QUEUE).owner, "owner"))
        return next((m for m in self.stage.members if f"-{m.process.pid}-" in name), None)

    def send(self, pools: Sequence[str], each: int, *, mixed: bool = False) -> None:
        """`mixed`: one for each pool in turn, and not all that are for one after the other."""
        asyncio.run(self._send([pools] * each if mixed else [[code] * each for code in pools]))

    async def _send(self, batches: Sequence[Sequence[str]]) -> None:
        publisher = open_publisher(self.stage.queue_uri)
        await publisher.open()
        journal = Journal(self.stage.sent_journal)
        for codes in batches:
            batch = []
            for code in codes:
                # Each of its own group: the queue shows no more of one that is out, and the pools are to be full.
                name, group = f"message-{self.sent:07d}", f"{code}-{self.sent}"
                body = {
                    "id": name, "poolCode": code, "messageGroupId": group, "mediationTarget": self.stage.endpoint_url,
                }  # fmt: skip
                batch.append(Outgoing(name, json.dumps(body).encode(), group))
                journal.sent(name, group, self.sent, pool=code)
                self.sent += 1
            assert not any(await publisher.publish(batch))
        journal.close()
        await publisher.close()

    def ends(self, pools: Sequence[str], since_ms: float = 0) -> dict[str, list[float]]:
        """When deliveries of each of these pools ended well."""
        found: dict[str, list[float]] = {code: [] for code in pools}
        for record in read(self.stage.endpoint_journal) if self.stage.endpoint_journal.exists() else ():
            if isinstance(record, End) and record.status == 200 and record.pool in found and record.t >= since_ms:
                found[str(record.pool)].append(record.t)
        return found

    def delivered(self) -> int:
        return sum(map(len, self.ends(self.all_pools).values()))

    def held(self) -> int:
        return sum(int(self.client.hlen(PoolKeys(code).entries)) for code in self.all_pools)

    def holds_for(self, seconds: int, latency_ms: int) -> bool:
        """Whether each pool has work for so long without its queue."""
        least = seconds * 1000 / latency_ms * CONCURRENCY
        return min(int(self.client.hlen(PoolKeys(code).entries)) for code in self.all_pools) > least

    def is_drained(self) -> bool:
        queue = QueueKeys(QUEUE)
        if self.held() or self.client.hlen(queue.tracked) or self.client.llen(queue.settled):
            return False
        depth = self.stage.depth()
        return depth.waiting + depth.invisible == 0

    def describe(self) -> str:
        logs = "\n".join(f"--- {m.role}\n{m.text()[-1500:]}" for m in self.stage.members)
        by_pool = {code: self.client.hlen(PoolKeys(code).entries) for code in self.all_pools}
        return f"{by_pool} {self.delivered()} of {self.sent} delivered, {self.held()} held\n{logs}"

    def judge_resumed(self, stopped: Sequence[str], from_ms: float, to_ms: float, *, gap_s: float) -> None:
        """The `stopped` pools, whose node hung from then to then, delivered again soon; the others never paused."""
        resumed_s = max(times[0] for times in self.ends(stopped, to_ms).values()) / 1000 - to_ms / 1000
        ends = self.ends([code for code in self.all_pools if code not in stopped])
        gaps = {code: longest_gap_s(times, from_ms, to_ms) for code, times in ends.items()}
        print(f"resumed after {resumed_s:.2f} s; longest pause of a healthy pool {max(gaps.values()):.2f} s")
        assert max(gaps.values()) < gap_s, gaps
        assert resumed_s < RESUMES_S

    def judge(self, in_flight: float) -> None:
        """`in_flight`: of the node that hung what was under way, and what was sent until that was noticed."""
        verdict = self.stage.verdict()
        print(verdict.table())
        assert [m.text()[-2000:] for m in self.stage.members if not m.alive] == []
        assert (verdict.sent, verdict.accepted) == (self.sent, self.sent)
        assert (verdict.lost, verdict.inversions) == (0, 0), verdict.examples
        assert verdict.duplicates <= in_flight


def longest_gap_s(times: Sequence[float], from_ms: float, to_ms: float) -> float:
    """Of a pool that has work for all of that time."""
    assert max(times) > to_ms, "it ran out of work"
    inside = [from_ms, *(t for t in sorted(times) if from_ms < t < to_ms), to_ms]
    return max(b - a for a, b in pairwise(inside)) / 1000


@pytest.mark.parametrize(("seconds", "latency_ms"), SIZES)
def test_pools_of_the_other_nodes_never_stop(tmp_path: Path, seconds: int, latency_ms: int) -> None:
    with running_redis_cluster() as cluster:
        house = House(tmp_path, cluster)
        node = house.node_of_pools_alone()
        stopped = house.pools[node.port]
        try:
            house.start(house.all_pools, latency_ms)
            house.send(house.all_pools, EACH)
            until(lambda: house.holds_for(seconds, latency_ms), 30, house.describe, every_s=0.1)
            house.deliver()
            until(lambda: all(house.ends(house.all_pools).values()), 30, house.describe, every_s=0.1)
            from_ms, to_ms = _freeze(node, seconds)
            until(house.is_drained, 120, house.describe, every_s=0.1)
            house.judge_resumed(stopped, from_ms, to_ms, gap_s=GAP_S)
            house.judge(len(stopped) * CONCURRENCY * (2 + STALL_MS / latency_ms))
        finally:
            house.stage.stop()
            house.client.close()


@pytest.mark.parametrize("heir", [False, True], ids=["", "heir"])
@pytest.mark.parametrize(("seconds", "latency_ms"), FED)
def test_a_queue_that_feeds_pools_on_all_nodes_is_read_on_while_one_hangs(
    tmp_path: Path, seconds: int, latency_ms: int, heir: bool
) -> None:
    """Its pools hold work for a second or two. `heir`: its owner is killed meanwhile."""
    with running_redis_cluster() as cluster:
        house = House(tmp_path, cluster)
        node = house.node_of_pools_alone()
        stopped = house.pools[node.port]
        a_second = 1000 / latency_ms * CONCURRENCY
        try:
            house.start(house.all_pools, latency_ms, capacity=50)
            house.send(house.all_pools, round((seconds + 6) * a_second), mixed=True)
            house.deliver()
            until(lambda: all(house.ends(house.all_pools).values()), 30, house.describe, every_s=0.1)
            owner = None
            if heir:
                until(lambda: house.owner() is not None, 10, house.describe)
                owner = house.owner()
                assert owner is not None
                killing = threading.Timer(seconds / 3, owner.kill)
                killing.start()
            from_ms, to_ms = _freeze(node, seconds)
            if owner is not None:
                killing.join()
                house.stage.members.remove(owner)
            until(house.is_drained, 120, house.describe, every_s=0.1)
            house.judge_resumed(stopped, from_ms, to_ms, gap_s=GAP_S + heir * HEIR_S)
            house.judge(len(stopped) * CONCURRENCY * (2 + STALL_MS / latency_ms))
        finally:
            house.stage.stop()
            house.client.close()


@pytest.mark.parametrize(("seconds", "latency_ms"), SIZES)
def test_queues_are_read_and_delivered_while_the_node_of_the_fleets_own_keys_hangs(
    tmp_path: Path, seconds: int, latency_ms: int
) -> None:
    with running_redis_cluster() as cluster:
        house = House(tmp_path, cluster)
        own = house.node_of(FleetKeys.config)
        assert own != house.node_of(QueueKeys(QUEUE).tracked)
        node = next(node for node in cluster.nodes if node.port == own)
        pools = [code for port, codes in house.pools.items() if port != own for code in codes]
        try:
            house.start(pools, latency_ms)
            house.send(pools, EACH // 2)
            house.deliver()
            until(lambda: house.delivered() > len(pools), 60, house.describe, every_s=0.1)
            node.server.pause()
            from_ms = time.time() * 1000
            house.send(pools, EACH // 2)
            until(lambda: time.time() * 1000 > from_ms + seconds * 1000, seconds + 30, lambda: "no clock", every_s=0.1)
            to_ms = time.time() * 1000
            waiting = house.stage.depth().waiting
            node.server.resume()
            until(house.is_drained, 120, house.describe, every_s=0.1)
            gaps = {code: longest_gap_s(times, from_ms, to_ms) for code, times in house.ends(pools).items()}
            print(f"longest pause of a pool {max(gaps.values()):.2f} s")
            assert waiting == 0, "nothing was taken from the queue meanwhile"
            assert max(gaps.values()) < GAP_S, gaps
            house.judge(0)
        finally:
            house.stage.stop()
            house.client.close()


def _freeze(node: RedisServer, seconds: float) -> tuple[float, float]:
    node.server.pause()
    from_ms = time.time() * 1000
    let_pass(seconds)
    to_ms = time.time() * 1000
    node.server.resume()
    return from_ms, to_ms
