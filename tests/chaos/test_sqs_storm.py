"""The SQS door in a storm: four doors are killed and stopped, and Redis with them, under senders and long polls.

An ordered queue of eight partitions and a standard one, each with its dead letters. What the clients saw says what came
of it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.sqs_storm import Form, outcome_of

SHORT = Form(faults=20, pause_s=0.5, send_pause_s=0.05)
WHOLE = Form(faults=300, pause_s=1.0, send_pause_s=0.05)


@pytest.mark.parametrize(
    "form", [pytest.param(SHORT, id="short"), pytest.param(WHOLE, id="whole", marks=pytest.mark.long)]
)
async def test_nothing_is_lost_or_inverted_or_comes_again_whoever_is_killed(tmp_path: Path, form: Form) -> None:
    outcome = await outcome_of(tmp_path, form, seed=20261120)
    print(f"{outcome.sent} sent, {outcome.dead_letters} dead letters, {outcome.faults}; {outcome.verdict}")
    assert outcome.died == []
    assert outcome.verdict.is_clean, str(outcome.verdict)
    assert outcome.leftover_before == []
    assert outcome.leftover_after == []
    # Else it was no storm.
    assert outcome.dead_letters > 0
