"""What a cluster cannot do is said in one line, before any Java is started."""

from __future__ import annotations

import pytest

from tests.acceptance.fleet_command import Fleet
from tests.servers.ports import free_port
from tests.spark.driver import Ground


@pytest.fixture
def fleet(ground: Ground) -> Fleet:
    ground.add(1, groups=1)
    return Fleet(
        ground.directory,
        {
            "FLEET_REDIS_URL": ground.redis.url,
            "FLEET_DATABASE_URL": ground.database,
            "FLEET_DATA_DIR": str(ground.directory),
            "JAVA_HOME": "/nowhere",
        },
    )


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_job_store_that_only_this_machine_sees_is_refused(fleet: Fleet) -> None:
    done = fleet.run("feed", "once", "--master", "spark://127.0.0.1:7077")
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "fleet: executors at spark://127.0.0.1:7077 see no file of this machine: [database] url, postgresql://…\n"
    )


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_queue_that_only_this_machine_sees_is_refused(fleet: Fleet) -> None:
    done = fleet.run("feed", "once", "--master", "spark://127.0.0.1:7077", "--queue", "sqlite:///q.db?queue=q")
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "fleet: executors at spark://127.0.0.1:7077 see no file of this machine: [feed] queue_url, fleet://…\n"
    )


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_master_that_is_not_there_is_named(fleet: Fleet) -> None:
    master = f"spark://127.0.0.1:{free_port()}"
    done = fleet.run("feed", "once", "--master", master)
    assert (done.code, done.out) == (1, "")
    assert done.err == f"fleet: no Spark at {master}: {master[8:]}: Connection refused\n"


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_who_submits_says_the_master_to_spark_submit(fleet: Fleet) -> None:
    done = fleet.run("feed", "once", "--master", "local[1]", PYSPARK_GATEWAY_PORT="1")
    assert done.code == 2
    assert "Give --master to spark-submit" in done.err
