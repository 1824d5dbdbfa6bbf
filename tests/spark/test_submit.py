"""The feed on a standalone cluster: submitted, as the files that `fleet feed pack` makes, and by `--master`."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import func, select

from fleet.jobs.schema import claims, epochs
from spark.pack import Packed, pack
from tests.acceptance.fleet_command import Fleet
from tests.spark.cluster import Cluster, running_cluster, unpack_environment
from tests.spark.driver import PATIENCE_S, Ground

MODES = ("IMMEDIATE", "NEXT_ON_ERROR", "BLOCK_ON_ERROR")
JOBS, GROUPS = 6000, 500
MOST_OUT = {"IMMEDIATE": JOBS, "NEXT_ON_ERROR": 10, "BLOCK_ON_ERROR": 1}
"""Of one group, before any outcome is known."""

pytestmark = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("spark") / "cluster") as found:
        yield found


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    """Where `fleet feed --master` looks for it too, with this data_dir."""
    made = pack(tmp_path_factory.mktemp("data") / "cluster")
    unpack_environment(made)
    return made


def environment(ground: Ground) -> dict[str, str]:
    return {
        "FLEET_REDIS_URL": ground.redis.url,
        "FLEET_DATABASE_URL": ground.database,
        "FLEET_DATABASE_APP_KEY": "k",
        "FLEET_LEASE_TTL_MS": str(ground.ttl_ms),
        "FLEET_FEED_SHARDS": str(ground.feed.shards),
        "DISPATCH_SCHEDULER_BATCH_SIZE": str(ground.feed.batch_size),
    }


def test_a_submitted_driver_that_is_killed_is_finished_by_the_next_and_executors_need_only_what_was_packed(
    ground: Ground, cluster: Cluster, packed: Packed
) -> None:
    bare = [str(cluster.directory / "python" / "bin" / "python3"), "-c", "import sqlalchemy"]
    assert subprocess.run(bare, env=dict(cluster.environment), capture_output=True).returncode == 1
    added = ground.add(JOBS, groups=GROUPS, modes=MODES)
    ground.feed = dataclasses.replace(ground.feed, batch_size=4000)
    settings = environment(ground)

    killed, said = cluster.submit(packed, "feed", "once", **settings, FLEET_FAILPOINT="feed-publishing:kill-driver:3")
    assert killed == 128 + signal.SIGKILL, said[-3000:]
    with ground.store.engine.connect() as connection:
        states = connection.execute(select(epochs.c.state).order_by(epochs.c.epoch)).scalars().all()
        frozen = connection.execute(select(func.count()).select_from(claims)).scalar_one()
    assert states[-1] == "frozen"
    assert frozen > 0

    code, said = cluster.submit(packed, "feed", "once", "--json", **settings)
    assert code == 0, said[-3000:]
    totals = json.loads(next(line for line in said.splitlines() if line.startswith('{"events"')))
    assert totals["inQueueAlready"] > 0
    held = {job for place, job in enumerate(added) if place // GROUPS >= MOST_OUT[MODES[place % GROUPS % 3]]}
    assert totals["queued"] == JOBS - len(held)
    ground.judge(set(added) - held, ground.drain())
    assert ground.states() == {("QUEUED", 1): JOBS - len(held), ("PENDING", 1): len(held)}
    for executor in cluster.executors():
        compiled = executor / "environment" / "packages" / "sqlalchemy" / "__pycache__"
        assert compiled.is_dir(), f"{executor} had its packages from elsewhere"


def test_an_installed_fleet_ships_what_executors_need_by_itself(
    ground: Ground, cluster: Cluster, packed: Packed, tmp_path: Path
) -> None:
    added = ground.add(60, groups=30)
    before = packed.environment.stat().st_mtime_ns
    fleet = Fleet(tmp_path, {**environment(ground), "FLEET_DATA_DIR": str(packed.directory.parent)})
    names = ("SPARK_CONF_DIR", "SPARK_LOCAL_DIRS", "SPARK_LOCAL_IP")
    surroundings = {name: cluster.environment[name] for name in names}
    with fleet.running("feed", "once", "--master", cluster.master, **surroundings) as process:
        code = process.popen.wait(PATIENCE_S)
        assert code == 0, process.text()
        assert "60 published in 1 epochs, 60 queued\n" in process.text()
    ground.judge(set(added), ground.drain())
    assert packed.environment.stat().st_mtime_ns == before, "packed again, though nothing had changed"
