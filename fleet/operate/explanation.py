"""What `fleet explain` answers: a state, what is waited for, until when, and the sentences that say why."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Explanation:
    subject: str
    state: str
    waits_for: str
    until_ms: int | None
    """None where no time can be named."""
    details: list[str] = field(default_factory=list)
    behind: str = ""
    """The message that it waits for, where that is another one."""

    def to_json(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "state": self.state,
            "waitsFor": self.waits_for,
            "until": None if self.until_ms is None else iso(self.until_ms),
            "details": self.details,
        }


def iso(ms: int) -> str:
    moment = datetime.fromtimestamp(ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def at(ms: int) -> str:
    """For a sentence."""
    return f"at {datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
