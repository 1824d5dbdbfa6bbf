"""What pools answer. Nobody waits for a pool that is known to be silent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from fleet.errors import StateUnavailable
from fleet.waiting import cancel

log = logging.getLogger("fleet.coordinator")

PATIENCE_S = 1.0
"""How long we wait for a pool that does not answer."""
SHORT_PATIENCE_S = 0.1
"""The same while another pool is silent: the next is likely to be on the same node, and others answer at once."""

Question = Callable[[], Coroutine[Any, Any, int]]
Call = asyncio.Task[tuple[int, float]]
"""The answer, and when it came."""


class Answers:
    """To one question that is put to pools again and again."""

    def __init__(self) -> None:
        self._silent: dict[str, Call] = {}
        """Calls that were not answered in time, by pool. A pool is not asked again before its call has ended."""
        self._under_way: set[Call] = set()
        """An event loop does not keep its tasks alive by itself."""

    async def to(self, questions: Mapping[str, Question]) -> dict[str, int]:
        """Only of pools that answer. An answer too late for one look counts for the next, so a slow pool is heard."""
        answers: dict[str, int] = {}
        patience_s = PATIENCE_S
        now_s = asyncio.get_running_loop().time()
        for code, call in list(self._silent.items()):
            if not call.done():
                patience_s = SHORT_PATIENCE_S
            elif code in questions:
                del self._silent[code]
                if _failed(call):
                    patience_s = SHORT_PATIENCE_S
                elif now_s - call.result()[1] < PATIENCE_S:
                    answers[code] = call.result()[0]
        asking = {
            code: self._ask(question) for code, question in questions.items() if code not in {*answers, *self._silent}
        }
        if not asking:
            return answers
        try:
            await asyncio.wait(asking.values(), timeout=patience_s)
        except asyncio.CancelledError:
            await cancel(asking.values())
            raise
        for code, call in asking.items():
            if not call.done():
                # Somebody else may have asked it meanwhile, and be waiting for that call.
                self._silent.setdefault(code, call)
            elif not _failed(call):
                answers[code] = call.result()[0]
        return answers

    def _ask(self, question: Question) -> Call:
        call = asyncio.create_task(_timed(question))
        self._under_way.add(call)
        call.add_done_callback(self._under_way.discard)
        call.add_done_callback(_heard)
        return call


def _failed(call: Call) -> bool:
    """Whether the pool could not be asked. Any other error is raised."""
    error = call.exception()
    if error is None or isinstance(error, StateUnavailable):
        return error is not None
    raise error


async def _timed(question: Question) -> tuple[int, float]:
    return await question(), asyncio.get_running_loop().time()


def _heard(call: Call) -> None:
    """Look at the error: asyncio prints one that nobody has looked at."""
    if not call.cancelled() and (error := call.exception()) is not None:
        log.debug("%s", error)
