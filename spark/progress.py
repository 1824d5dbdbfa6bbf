"""What a driver says while it works: epochs, jobs and lag, on a line that is rewritten, or on a few lines in a log."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from fleet.words import number

Say = Callable[[str], None]
EVERY_S = 5.0


@dataclass(kw_only=True)
class Progress:
    say: Say
    """A line that stays."""
    show: Say | None = None
    """A line that the next one replaces, for a person who watches. `None`: nobody does, and lines are few instead."""
    every_s: float = EVERY_S
    clock: Callable[[], float] = time.monotonic
    _epochs: tuple[int, int] | None = None
    _jobs: int = 0
    _busy_s: float = 0.0
    _said_s: float = float("-inf")
    _waiting: str = ""

    def step(self, words: str) -> None:
        """Show what begins now to a person who waits: an epoch of a backfill takes a while."""
        if self.show is not None:
            self.show(f"{self._told()}{'; ' if self._epochs else ''}{words} …")

    def epoch(self, number: int, *, jobs: int, took_s: float, waiting: int, lag_s: float) -> None:
        """`jobs`: published by this epoch; `waiting`: due, but not in it; `lag_s`: how long the oldest had waited."""
        self._epochs = (self._epochs[0] if self._epochs else number, number)
        self._jobs += jobs
        self._busy_s += took_s
        self._waiting = f", {waiting:,} wait, the oldest for {lag_s:.1f} s" if waiting else f", lag {lag_s:.1f} s"
        if self.show is not None:
            self.show(self._told())
        else:
            self.rest()

    def rest(self) -> None:
        """Nothing to do for now: say what was held back, if it is time."""
        if self.clock() - self._said_s >= self.every_s:
            self.flush()

    def held(self, *, waiting: int, lag_s: float, why: str) -> None:
        """Nothing could be published, though something is due."""
        words = f"{waiting:,} wait {why}, the oldest for {lag_s:.1f} s"
        self._waiting = f", {words}"
        if self.show is not None:
            self.show(words)
        elif self.clock() - self._said_s >= 12 * self.every_s:
            self.flush()
            self._say(words)

    def flush(self) -> None:
        """Say what was held back, so that a log does not end out of date."""
        if self._epochs and self.show is None:
            self._say(self._told())
            self._epochs, self._jobs, self._busy_s = None, 0, 0.0

    def _say(self, words: str) -> None:
        self._said_s = self.clock()
        self.say(words)

    def _told(self) -> str:
        if self._epochs is None:
            return ""
        first, last = self._epochs
        which = f"epoch {first}" if first == last else f"epochs {first}–{last}"
        rate = self._jobs / self._busy_s if self._busy_s else 0.0
        return f"{which}: {number(self._jobs, 'job')} published, {rate:,.0f}/s{self._waiting}"
