"""What is sent again after a line that was lost, and what is not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fleet.errors import SourceUnavailable
from fleet.sources.activemq.address import parse_address
from fleet.sources.activemq.frames import StompCommand
from fleet.sources.activemq.line import Answer
from fleet.sources.activemq.publisher import ActiveMqPublisher
from fleet.sources.base import Outgoing, Unsure


class ScriptedLine:
    """Answers the first call like this, and every later one with yes."""

    is_up = True

    def __init__(self, answers: Sequence[Answer]) -> None:
        self._answers = answers
        self.sent: list[list[str]] = []

    async def ask(self, commands: Sequence[StompCommand]) -> list[Answer]:
        self.sent.append([command.body.decode() for command in commands])
        return list(self._answers) if len(self.sent) == 1 else [""] * len(commands)

    def unavailable(self) -> SourceUnavailable:
        return SourceUnavailable("gone")


@pytest.mark.parametrize(
    ("answers", "sent_again", "unsure"),
    [
        (["", "no", None, None], ["2", "3"], []),
        (["", "no", "", None], None, [3]),
        (["", None, "no", None], None, [1, 3]),
        (["", "", None, None], None, [2, 3]),
    ],
    ids=["closed-over-a-refusal", "lost-later", "out-of-order", "lost"],
)
async def test_only_what_stands_right_behind_a_refusal_is_sent_again(
    monkeypatch: pytest.MonkeyPatch, answers: list[Answer], sent_again: list[str] | None, unsure: list[int]
) -> None:
    line = ScriptedLine(answers)
    publisher = ActiveMqPublisher(address=parse_address("stomp://127.0.0.1/q"))

    async def connected() -> ScriptedLine:
        return line

    monkeypatch.setattr(publisher, "_connected", connected)
    results = await publisher.publish([Outgoing(str(n), str(n).encode()) for n in range(4)])
    assert line.sent[1:] == ([] if sent_again is None else [sent_again])
    assert [place for place, why in enumerate(results) if isinstance(why, Unsure)] == unsure
    assert [place for place, why in enumerate(results) if why == "no"] == [n for n in range(4) if answers[n] == "no"]
