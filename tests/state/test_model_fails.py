"""The models can fail: with any of these bugs, put into a script by hand and in memory, they do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import Phase

from fleet.state import scripts
from tests.simulation.direct import DirectClient
from tests.state.engine_machine import EngineMachine, StandardMachine, SubscriptionMachine
from tests.state.test_model import drive

BUGS = [
    pytest.param(
        EngineMachine,
        "own/receive",
        "        if ripe_ms > now then\n",
        "        if ripe_ms > now and j == 1 then\n",
        id="a group goes on behind a message that is out",
    ),
    pytest.param(
        EngineMachine,
        "own/conclude",
        "  if ended[seq] or (string.match(noted[i] or '', '^[%d.]+') or '1') ~= count then return 0 end\n",
        "",
        id="an old handle acts on a message that was shown again",
    ),
    pytest.param(
        EngineMachine,
        "own/send",
        "(here[dedup_id] or (known[i] and tonumber(known[i]) > forgotten and known[i]))",
        "here[dedup_id]",
        id="a deduplication id is forgotten with its call",
    ),
    pytest.param(
        StandardMachine,
        "with/own_moving",
        "  redis.call('RPUSH', outbox .. target, table.concat({ place, seq, count, first, group, body }, SEP))\n",
        "",
        id="what leaves for another queue does not wait in the outbox",
    ),
    pytest.param(
        StandardMachine,
        "own/arrive",
        "  if tonumber(ARGV[base + 1]) > place then\n",
        "  if true then\n",
        id="what a courier brings again is taken again",
    ),
    pytest.param(
        StandardMachine,
        "own/leave",
        "tonumber((head_of(page[here + 1]))) <= place do",
        "place > 0 do",
        id="an outbox is trimmed of what has not arrived",
    ),
    pytest.param(
        SubscriptionMachine,
        "with/own_queue",
        "  if redis.call('EXISTS', refs) == 1 then\n",
        "  if false then\n",
        id="a body goes while another subscription holds it",
    ),
]


@pytest.fixture
def break_script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str, str], None]]:
    read = scripts._read

    def break_one(name: str, old: str, new: str) -> None:
        text = read(name)
        assert text.count(old) == 1, "a bug that breaks nothing would prove nothing"
        monkeypatch.setattr(scripts, "_read", lambda asked: text.replace(old, new) if asked == name else read(asked))
        scripts.script.cache_clear()

    yield break_one
    monkeypatch.undo()
    scripts.script.cache_clear()


@pytest.mark.parametrize(("machine", "name", "old", "new"), BUGS)
def test_the_model_fails_with_a_bug_that_was_put_in_by_hand(
    machine: Any, name: str, old: str, new: str, break_script: Callable[[str, str, str], None]
) -> None:
    async def simulated() -> Any:
        return DirectClient()

    break_script(name, old, new)
    with pytest.raises(AssertionError):
        drive(
            machine,
            simulated,
            examples=1_000,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            report_multiple_bugs=False,
        )
