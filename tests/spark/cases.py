"""Groups in every state that hypothesis can think of."""

from __future__ import annotations

from hypothesis import strategies as st

from spark.why import Job

NOW_MS = 1_000_000
GROUPS = (None, "", "g1", "g2", "Ω–g3")
MODES = ("IMMEDIATE", "NEXT_ON_ERROR", "BLOCK_ON_ERROR")
# What is over holds nobody; it is left out, as the store leaves it out.
STATUSES = ("PENDING", "PENDING", "PENDING", "QUEUED", "IN_PROGRESS", "ERROR")
FAR_MS = 253_402_300_800_000  # the year 10000

times = st.one_of(st.none(), st.sampled_from([0, NOW_MS - 1, NOW_MS, NOW_MS + 1, FAR_MS]))


@st.composite
def one_job(draw: st.DrawFn, number: int) -> Job:
    return Job(
        id=f"{draw(st.sampled_from('azAZ_é'))}{number}",
        message_group=draw(st.sampled_from(GROUPS)),
        mode=draw(st.sampled_from(MODES)),
        status=draw(st.sampled_from(STATUSES)),
        sequence=draw(st.sampled_from([1, 99, 99, 99, 100])),
        created_ms=draw(st.integers(1, 4)),
        attempt=draw(st.sampled_from([1, 1, 2])),
        scheduled_ms=draw(times),
        expires_ms=draw(st.one_of(st.none(), st.none(), times)),
    )


@st.composite
def job_tables(draw: st.DrawFn, most: int = 40) -> list[Job]:
    return [draw(one_job(number)) for number in range(draw(st.integers(0, most)))]
