"""What a process says of the outages of Redis: each thing once while one lasts, and once that it is over."""

from __future__ import annotations

import logging

from fleet.errors import StateUnavailable

log = logging.getLogger("fleet.redis")


class Outages(logging.Filter):
    """Of the lines on their way to the log; whoever writes one need not know what others have written.

    A line is of an outage where it quotes an error of Redis, or one that came of such an error.
    """

    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()
        self.seen = 0
        """How many such lines there were, also those that were not repeated."""

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
        """Whether something was said that is not taken back yet."""
        return bool(self._said)

    def over(self) -> None:
        if self._said:
            self._said.clear()
            log.info("Redis is back")


outages = Outages()
"""Of this process, as its log is."""


def _is_of_redis(error: object) -> bool:
    while isinstance(error, BaseException):
        if isinstance(error, StateUnavailable):
            return True
        error = error.__cause__
    return False
