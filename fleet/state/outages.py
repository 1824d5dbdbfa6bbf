"""What a process logs about an outage of Redis: each line once while it lasts, and one line when it is over."""

from __future__ import annotations

import logging

from fleet.errors import StateUnavailable

log = logging.getLogger("fleet.redis")


class Outages(logging.Filter):
    """Filters lines on their way to the log, so that code that logs need not know what other code has logged.

    A line is about an outage if it quotes an error of Redis, or an error that such a one caused.
    """

    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()
        self.seen = 0
        """How many such lines there were, including those that were not repeated."""

    def filter(self, record: logging.LogRecord) -> bool:
        arguments = record.args if isinstance(record.args, tuple) else ()
        if not any(_is_of_redis(argument) for argument in arguments):
            return True
        self.seen += 1
        text = record.getMessage()
        if text in self._said:
            return False
        self._said.add(text)
        return True

    @property
    def lasts(self) -> bool:
        """Whether an outage was logged, and not yet that it is over."""
        return bool(self._said)

    def over(self) -> None:
        if self._said:
            self._said.clear()
            log.info("Redis is back")


outages = Outages()
"""One for the process, like its log."""


def _is_of_redis(error: object) -> bool:
    while isinstance(error, BaseException):
        if isinstance(error, StateUnavailable):
            return True
        error = error.__cause__
    return False
