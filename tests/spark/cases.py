"""Groups in every state that hypothesis can think of."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from random import Random

from hypothesis import strategies as st
from sqlalchemy import Engine, delete, insert

from fleet.jobs.database import writing
from fleet.jobs.records import MODES
from fleet.jobs.schema import dispatch_jobs
from spark.why import Candidate

NOW_MS = 1_000_000
POOLS = ("P", "P", "Q", "R")
pools_with_little_room = st.sampled_from([{}, {"P": 0}, {"P": 1}, {"Q": 0}, {"P": 2, "Q": 1}, {"P": 6, "R": 3}])
GROUPS = (None, "", "g1", "g2", "Ω–g3")
# What is over holds nobody; it is left out, as the store leaves it out.
STATUSES = ("PENDING", "PENDING", "PENDING", "QUEUED", "IN_PROGRESS", "ERROR")
FAR_MS = 253_402_300_800_000  # the year 10000

TURNS = ({"attempt": 1, "tried": 0}, {"attempt": 2, "tried": 1}, {"attempt": 2, "tried": 0})
"""The last one was put back before it was delivered: its target was known to fail."""

times = st.one_of(st.none(), st.sampled_from([0, NOW_MS - 1, NOW_MS, NOW_MS + 1, FAR_MS]))


@st.composite
def one_job(draw: st.DrawFn, number: int) -> Candidate:
    return Candidate(
        id=f"{draw(st.sampled_from('azAZ_é'))}{number}",
        msg_group=draw(st.sampled_from(GROUPS)),
        mode=draw(st.sampled_from(MODES)),
        status=draw(st.sampled_from(STATUSES)),
        sequence=draw(st.sampled_from([1, 99, 99, 99, 100])),
        created_ms=draw(st.integers(1, 4)),
        **draw(st.sampled_from(TURNS)),
        scheduled_ms=draw(times),
        expires_ms=draw(st.one_of(st.none(), st.none(), times)),
        pool=draw(st.sampled_from(POOLS)),
    )


@st.composite
def job_tables(draw: st.DrawFn, most: int = 40) -> list[Candidate]:
    return [draw(one_job(number)) for number in range(draw(st.integers(0, most)))]


SOME_MODES = (MODES, MODES, ("NEXT_ON_ERROR",), ("BLOCK_ON_ERROR",), ("NEXT_ON_ERROR", "BLOCK_ON_ERROR"))


@st.composite
def crowds(draw: st.DrawFn) -> list[Candidate]:
    """Few groups that are deep: what matters of them stands behind more jobs than a window or a head has.

    Made from a seed, as hypothesis alone draws small things; and not all of any kind in each, as one job that is out
    or late in front would hide what stands behind it.
    """
    chance = Random(draw(st.integers(0, 2**32 - 1)))
    groups = chance.sample(GROUPS, draw(st.integers(1, 3)))
    modes = draw(st.sampled_from(SOME_MODES))
    out, later, again, expires = (draw(st.sampled_from([0.0, 0.05, 0.5])) for _ in range(4))
    return [
        Candidate(
            id=f"{chance.choice('azAZ_é')}{number}",
            msg_group=chance.choice(groups),
            mode=chance.choice(modes),
            status=chance.choice(STATUSES[3:]) if chance.random() < out else "PENDING",
            sequence=chance.choice([-1, 1, 99, 99, 100]),
            created_ms=chance.randint(1, 30) + chance.choice(ERAS),
            **(chance.choice(TURNS[1:]) if chance.random() < again else TURNS[0]),
            scheduled_ms=chance.choice([NOW_MS + 1, FAR_MS]) if chance.random() < later else chance.choice(PAST),
            expires_ms=chance.choice([1, NOW_MS]) if chance.random() < expires else chance.choice([None, NOW_MS + 1]),
            pool=chance.choice(POOLS),
        )
        for number in range(draw(st.integers(10, 100)))
    ]


ERAS = (0, 0, -(2**33), 2**33)
"""Farther away than the plan's one number for a job's place reaches."""
PAST = (None, None, 0, NOW_MS - 1, NOW_MS)


def put(engine: Engine, jobs: Sequence[Candidate]) -> None:
    """These, and no other, into the store."""
    rest = {"target_url": "", "payload": ""}
    rows = [dataclasses.asdict(job) | rest for job in jobs]
    for row in rows:
        row["last_error"] = "HTTP 500" if row.pop("tried") else None
    with writing(engine) as connection:
        connection.execute(delete(dispatch_jobs))
        if rows:
            connection.execute(insert(dispatch_jobs), rows)
