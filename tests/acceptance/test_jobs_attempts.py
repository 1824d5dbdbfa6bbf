"""Several attempts of one job in the queue at once: recovery or an open breaker has let it go again meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import update

from fleet.jobs.database import open_engine, parse_url, writing
from fleet.jobs.schema import dispatch_jobs
from spark.sources.send import Destination, Row, Sender
from tests.acceptance.office import an_office
from tests.acceptance.test_jobs_breaker import added
from tests.acceptance.webhooks import a_target
from tests.servers.local import RedisServer
from tests.waiting import until

JOBS = 5


@pytest.mark.parametrize("kind", ["sqlite", "fleet"])
async def test_the_attempt_that_counts_is_delivered_and_the_group_stays_in_order(
    tmp_path: Path, redis_server: RedisServer, kind: str
) -> None:
    """As it stands after the first message was lost: its siblings' old ones, then all of them anew.

    A router that took the new ones for copies of the old would throw them away, and the jobs would be out for good.
    """
    database_url = f"sqlite:///{tmp_path}/jobs.db"
    office = an_office(tmp_path, redis_server, database_url)
    uri = "fleet://dispatch" if kind == "fleet" else f"sqlite:///{tmp_path}/queue.db?queue=dispatch"
    router = {"queues": [{"queueName": "dispatch", "queueUri": uri}], "processingPools": []}
    (tmp_path / "router.json").write_text(json.dumps(router))
    with a_target() as target, office.server() as (_, address):
        jobs = added(office, target, JOBS, messageGroup="g")
        engine = open_engine(parse_url(database_url))
        with writing(engine) as connection:
            connection.execute(update(dispatch_jobs).values(status="QUEUED", attempt=2))
        engine.dispose()
        sender = Sender(
            Destination(
                uri=uri, redis_url=redis_server.url, sqs_endpoint="", endpoint=f"{address}/api/dispatch/process",
                key=b"acceptance", fence=1, dedup_ms=60_000,
            )
        )  # fmt: skip
        await sender.open()
        messages = [*((job, 1) for job in jobs[1:]), *((job, 2) for job in jobs)]
        await sender.send([Row(job, attempt, "g", "NEXT_ON_ERROR", "DEFAULT-POOL") for job, attempt in messages])
        await sender.close()
        fleet = office.fleet
        with (
            fleet.running("syncer", "--config", "router.json"),
            fleet.running("coordinator") as coordinator,
            fleet.running("worker"),
        ):
            until(
                lambda: fleet.run("jobs", "stats", "--json").document["COMPLETED"] == JOBS,
                why=coordinator.text,
                within_s=30,
            )
    assert [got.headers["fleet-job"] for got in target.received] == jobs
    assert {got.headers["fleet-attempt"] for got in target.received} == {"2"}
