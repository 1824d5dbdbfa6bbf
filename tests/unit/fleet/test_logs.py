"""What a log line looks like, and what never stands in one."""

from __future__ import annotations

import logging
import re
import sys

from fleet.logs import LineFormatter


def line(text: str, *, error: bool = False) -> str:
    trouble = None
    if error:
        try:
            raise ValueError("redis://user:hunter2@host/0 is away")
        except ValueError:
            trouble = sys.exc_info()
    record = logging.LogRecord("fleet", logging.WARNING, __file__, 1, text, (), trouble)
    return LineFormatter("worker-1").format(record)


def test_a_line_says_when_in_utc_how_grave_who_and_what() -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING worker-1 all is well", line("all is well"))


def test_an_event_is_one_line_even_with_a_traceback() -> None:
    assert "\n" not in line("first\r\nsecond", error=True)
    assert "ValueError" in line("x", error=True)


def test_the_user_of_a_url_is_never_shown() -> None:
    shown = line("cannot reach redis://user:hunter2@host:6379/0", error=True)
    assert "hunter2" not in shown
    assert "redis://host:6379/0" in shown
