"""What `fleet explain` answers: a state, what is waited for, until when, and the sentences that say why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fleet.words import utc


@dataclass(frozen=True, slots=True)
class Explanation:
    subject: str
    state: str
    waits_for: str
    until_ms: int | None
    """None if no time can be named."""
    details: list[str] = field(default_factory=list)
    behind: str = ""
    """The message that it waits for, if that is another one."""

    def to_json(self) -> dict[str, Any]:
        return {
            "subject": self.subject,
            "state": self.state,
            "waitsFor": self.waits_for,
            "until": None if self.until_ms is None else utc(self.until_ms),
            "details": self.details,
        }
