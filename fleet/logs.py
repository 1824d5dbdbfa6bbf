"""The logs of every process: one line per event, in UTC, with the process's name. No secret gets here at all."""

from __future__ import annotations

import logging
import re
import sys
import time

from fleet.state.outages import outages

_USER_INFO = re.compile(r"(?<=://)[^/\s'\"]*@")


class LineFormatter(logging.Formatter):
    """`2026-01-31T12:00:00.123Z INFO worker-1 text`; an unexpected error keeps its traceback, on one line."""

    converter = staticmethod(time.gmtime)

    def __init__(self, process: str) -> None:
        super().__init__(f"%(asctime)s.%(msecs)03dZ %(levelname)s {process} %(message)s", "%Y-%m-%dT%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        # A message may quote text from elsewhere, with line ends in it or a URL with its password.
        return _USER_INFO.sub("", super().format(record)).replace("\r", " ").replace("\n", " | ")


def set_up(*, level: str, process: str) -> None:
    """Send this process's logs to stderr. Called once, by the command that becomes the process."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(process))
    handler.addFilter(outages)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger("fleet").setLevel(level)


def remark(text: str) -> None:
    """Log something in the settings that is allowed but probably a mistake."""
    logging.getLogger("fleet").warning("%s", text)
