"""What pools answer, as far as they do: nobody waits for one that is known to be silent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from fleet.errors import StateUnavailable
from fleet.tasks import cancel

log = logging.getLogger("fleet.coordinator")

PATIENCE_S = 1.0
"""So long a pool is waited for that does not answer."""
SHORT_PATIENCE_S = 0.1
"""While another is silent: the next one is likely to be on the same node, and those that work answer at once."""

Question = Callable[[], Coroutine[Any, Any, int]]
Call = asyncio.Task[tuple[int, float]]
"""Its answer, and when that came."""


class Answers:
    """To one question, put to pools again and again."""

    def __init__(self) -> None:
        self._silent: dict[str, Call] = {}
        """By pool the call that it has not answered. It is not asked again before that has ended."""

    async def to(self, questions: Mapping[str, Question]) -> dict[str, int]:
        """Of those that answer, now or a moment ago: late to the last look, so that a slow pool is heard after all."""
        answers: dict[str, int] = {}
        patience_s = PATIENCE_S
        now_s = asyncio.get_running_loop().time()
        for code, call in list(self._silent.items()):
            if not call.done() or _failed(self._silent.pop(code)):
                patience_s = SHORT_PATIENCE_S
            elif code in questions and now_s - call.result()[1] < PATIENCE_S:
                answers[code] = call.result()[0]
        asking = {code: _ask(question) for code, question in questions.items() if code not in {*answers, *self._silent}}
        if not asking:
            return answers
        try:
            await asyncio.wait(asking.values(), timeout=patience_s)
        except asyncio.CancelledError:
            await cancel(asking.values())
            raise
        for code, call in asking.items():
            if not call.done():
                self._silent[code] = call
            elif not _failed(call):
                answers[code] = call.result()[0]
        return answers


def _failed(call: Call) -> bool:
    """Whether its pool could not be asked. Any other error is raised."""
    error = call.exception()
    if error is None or isinstance(error, StateUnavailable):
        return error is not None
    raise error


def _ask(question: Question) -> Call:
    call = asyncio.create_task(_timed(question))
    call.add_done_callback(_heard)
    return call


async def _timed(question: Question) -> tuple[int, float]:
    return await question(), asyncio.get_running_loop().time()


def _heard(call: Call) -> None:
    """An error that nobody asks for is printed when its task is forgotten."""
    if not call.cancelled() and (error := call.exception()) is not None:
        log.debug("%s", error)
