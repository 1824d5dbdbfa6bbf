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


class Answers:
    def __init__(self) -> None:
        self._silent: dict[str, asyncio.Task[int]] = {}
        """By pool the call that it has not answered. It is not asked again before that has ended."""

    async def to(self, questions: Mapping[str, Question]) -> dict[str, int]:
        """Of those that answer."""
        patience_s = SHORT_PATIENCE_S if self._silent else PATIENCE_S
        self._silent = {code: call for code, call in self._silent.items() if not call.done()}
        asking = {code: _ask(question) for code, question in questions.items() if code not in self._silent}
        if not asking:
            return {}
        try:
            await asyncio.wait(asking.values(), timeout=patience_s)
        except asyncio.CancelledError:
            await cancel(asking.values())
            raise
        answers: dict[str, int] = {}
        for code, call in asking.items():
            if not call.done():
                self._silent[code] = call
            elif not isinstance(call.exception(), StateUnavailable):
                answers[code] = call.result()
        return answers


def _ask(question: Question) -> asyncio.Task[int]:
    call = asyncio.create_task(question())
    call.add_done_callback(_heard)
    return call


def _heard(call: asyncio.Task[int]) -> None:
    """An error that nobody asks for is printed when its task is forgotten."""
    if not call.cancelled() and (error := call.exception()) is not None:
        log.debug("%s", error)
