"""The feed on a standalone cluster: submitted, as the files that `fleet feed pack` makes, and by `--master`."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path

import psutil
import pytest
from sqlalchemy import func, select

from fleet.jobs.schema import claims, epochs
from spark.pack import Packed, pack
from tests.acceptance.fleet_command import Fleet
from tests.spark.cluster import PATIENCE_S, Cluster, running_cluster, unpack_environment
from tests.spark.driver import Ground
from tests.stage import until

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


def executors_used_what_was_packed(cluster: Cluster, there: Collection[Path] = ()) -> None:
    """Python writes down, beside it, what it has compiled of a package."""
    found = [one for one in cluster.executors() if one not in there]
    assert found
    for executor in found:
        assert (executor / "environment/packages/sqlalchemy/__pycache__").is_dir(), f"{executor}: from elsewhere"


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
    executors_used_what_was_packed(cluster)


def test_an_installed_fleet_ships_what_executors_need_by_itself(
    ground: Ground, cluster: Cluster, packed: Packed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Sessions of other tests set it, and a Python that somebody has chosen for executors is theirs to equip.
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    there = set(cluster.executors())
    added = ground.add(60, groups=30)
    before = packed.environment.stat().st_mtime_ns
    fleet = Fleet(tmp_path, {**environment(ground), "FLEET_DATA_DIR": str(packed.directory.parent)})
    names = ("SPARK_CONF_DIR", "SPARK_LOCAL_DIRS", "SPARK_LOCAL_IP")
    surroundings = {name: cluster.environment[name] for name in names}
    with fleet.running("feed", "once", "--master", cluster.master, **surroundings) as process:
        code = process.popen.wait(PATIENCE_S)
        assert code == 0, process.text()
        assert "60 published in 1 epoch, 60 queued\n" in process.text()
    ground.judge(set(added), ground.drain())
    executors_used_what_was_packed(cluster, there)
    assert packed.environment.stat().st_mtime_ns == before, "packed again, though nothing had changed"


@pytest.mark.long
def test_a_submitted_driver_that_is_told_to_stop_leaves_nothing_behind(
    ground: Ground, cluster: Cluster, packed: Packed
) -> None:
    ground.add(60, groups=30)
    with cluster.submitting(packed, "feed", "run", **environment(ground)) as (popen, log):
        until(lambda: ground.states() == {("QUEUED", 1): 60}, PATIENCE_S, log.read_text)
        family = psutil.Process(popen.pid).children(recursive=True)
        assert family, "spark-submit runs the driver as a process of its own"
        popen.terminate()
        popen.wait(PATIENCE_S)
        gone, alive = psutil.wait_procs(family, timeout=30)
        assert (len(gone), alive) == (len(family), [])
    with ground.leading() as feed:
        assert feed.once().sent == 0
    assert len(ground.drain()) == 60
