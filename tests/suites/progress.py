"""A plugin of pytest that says how far it is: how many tests have ended, and of how many, in a file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

FILE = "SUITES_PROGRESS"
"""The variable that names it."""


class Progress:
    def __init__(self, file: Path) -> None:
        self._file = file
        self._of = self._ended = 0

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._of = len(session.items)
        self._tell()

    def pytest_runtest_logfinish(self) -> None:
        self._ended += 1
        self._tell()

    def _tell(self) -> None:
        self._file.write_text(f"{self._ended} of {self._of}")


def pytest_configure(config: pytest.Config) -> None:
    # Tests start pytest too, or could: what they start has nothing to say here.
    if file := os.environ.pop(FILE, ""):
        config.pluginmanager.register(Progress(Path(file)))
