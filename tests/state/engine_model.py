"""The few lines that say what the engine holds: the messages of a queue, on their way out of it, and in its target."""

from __future__ import annotations

from dataclasses import dataclass, field

RETENTION_MS = 600_000


@dataclass
class Message:
    number: int
    group: str
    body: str
    ripe_ms: int
    """Sent with a delay until then; 0 if not."""
    until_ms: int = 0
    """Hidden until then; 0 if it never was."""
    deadline_ms: int = 0
    times: int = 0
    voided: bool = False
    """Shown again at somebody's word, which ends the handle."""

    def is_hidden(self, now_ms: int) -> bool:
        return max(self.until_ms, self.ripe_ms) > now_ms

    def is_old(self, now_ms: int) -> bool:
        return self.number / 1000 + RETENTION_MS <= now_ms


@dataclass
class Handle:
    number: str
    times: int
    group: str


@dataclass
class Model:
    queue: list[Message] = field(default_factory=list)
    outbox: list[str] = field(default_factory=list)
    target: list[str] = field(default_factory=list)
    dedup: dict[str, int] = field(default_factory=dict)

    def of(self, number: str) -> Message | None:
        return next((one for one in self.queue if one.number == int(number)), None)

    def before(self, message: Message) -> list[Message]:
        return [
            one for one in self.queue if message.group and one.group == message.group and one.number < message.number
        ]
