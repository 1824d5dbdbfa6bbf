"""The feed on a standalone cluster: submitted, as the files that `fleet feed pack` makes, and by `--master`."""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import psutil
import pytest

from spark.pack import Packed, pack
from tests.acceptance.fleet_command import Fleet, Process
from tests.servers.local import RedisServer
from tests.spark.cluster import PATIENCE_S, Cluster, running_cluster, unpack_environment
from tests.spark.driver import Ground
from tests.spark.story import PLACES, killed_and_judged
from tests.spark.works import the_works
from tests.waiting import until

NOT_SUBMITTED = ("FLEET_DATA_DIR", "FLEET_CONFIG", "FLEET_FEED_MASTER")
"""Of another machine, or said to spark-submit itself."""

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
    }


def executors_used_what_was_packed(cluster: Cluster, there: Collection[Path] = ()) -> None:
    """Python writes down, beside it, what it has compiled of a package."""
    found = [one for one in cluster.executors() if one not in there]
    assert found
    for executor in found:
        assert (executor / "environment/packages/sqlalchemy/__pycache__").is_dir(), f"{executor}: from elsewhere"


@pytest.mark.parametrize(
    ("jobs", "groups", "places"),
    [
        pytest.param(1500, 300, PLACES[-1:], id="short"),
        pytest.param(20_000, 500, PLACES, marks=pytest.mark.long, id="whole"),
    ],
)
def test_submitted_drivers_are_killed_and_no_job_is_lost_doubled_or_out_of_order(
    tmp_path: Path,
    redis_server: RedisServer,
    database_url: str,
    cluster: Cluster,
    packed: Packed,
    jobs: int,
    groups: int,
    places: Sequence[str],
) -> None:
    """As `test_whole.py`, with drivers that were packed and submitted, and executors that need nothing else.

    A killed driver's executors are processes of others here, and may go on for a moment.
    """
    bare = [str(cluster.directory / "python" / "bin" / "python3"), "-c", "import sqlalchemy"]
    assert subprocess.run(bare, env=dict(cluster.environment), capture_output=True).returncode == 1
    there = set(cluster.executors())

    def submitting(environment: Mapping[str, str]) -> AbstractContextManager[Process]:
        settings = {name: value for name, value in environment.items() if name not in NOT_SUBMITTED}
        return cluster.submitting(packed, "feed", "run", **settings)

    feed = {"FLEET_FEED_BATCH_SIZE": str(jobs // 4)}
    with the_works(tmp_path, redis_server, database_url, feed, launch=submitting) as works:
        killed_and_judged(works, jobs, groups, places=places)
    executors_used_what_was_packed(cluster, there)


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
    with cluster.submitting(packed, "feed", "run", **environment(ground)) as submitted:
        until(lambda: ground.states() == {("QUEUED", 1): 60}, why=submitted.text, within_s=PATIENCE_S)
        family = submitted.family()
        assert family, "spark-submit runs the driver as a process of its own"
        submitted.popen.terminate()
        submitted.popen.wait(PATIENCE_S)
        gone, alive = psutil.wait_procs(family, timeout=30)
        assert (len(gone), alive) == (len(family), [])
    with ground.leading() as feed:
        assert feed.once().sent == 0
    assert len(ground.drain()) == 60
