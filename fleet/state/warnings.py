"""Warnings: what people should hear of. Redis keeps them for eight hours (seed 000), and which of them somebody saw."""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fleet.state.connect import Client, translated
from fleet.state.keys import FleetKeys
from fleet.state.registry import Registry
from fleet.state.scripts import SEP, script
from fleet.words import utc

Severity = Literal["CRITICAL", "ERROR", "WARN", "INFO"]

KEEP_MS = 8 * 3600 * 1000
MOST = 10_000
MAX_TEXT = 2000
_PAGE = 500
_USER_INFO = re.compile(r"(?<=://)[^/\s'\"]*@")


@dataclass(frozen=True, slots=True)
class WarningView:
    id: str
    category: str
    severity: Severity
    message: str
    source: str
    count: int
    first_ms: int
    last_ms: int
    acknowledged: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "category": self.category,
            "severity": self.severity,
            "message": self.message,
            "timestamp": utc(self.last_ms),
            "source": self.source,
            "acknowledged": self.acknowledged,
            "count": self.count,
            "firstTimestamp": utc(self.first_ms),
        }


class Warnings:
    """`now_ms` is for tests; empty means Redis TIME."""

    def __init__(self, client: Client, *, now_ms: str = "") -> None:
        self.client = client
        self.now_ms = now_ms

    async def add(self, category: str, severity: str, message: str, source: str, *, times: int = 1) -> str:
        """Keep it, or count it with the same one that nobody has acknowledged. Returns its id.

        Two are the same if category, source and message are: so a message's id does not belong in the text.
        """
        message = _clean(_USER_INFO.sub("", message), MAX_TEXT)
        category, source = _clean(category, 100), _clean(source, 100)
        kind = hashlib.sha1(SEP.join((category, source, message)).encode(), usedforsecurity=False).hexdigest()
        # Ids sort in the order in which they are made: warnings of one millisecond are listed by their ids.
        fresh = f"{time.time_ns() // 1000:014x}{secrets.token_hex(2)}"
        record = SEP.join((category, severity_of(severity), source, message))
        s = script("warn")
        id_, _ = await s(
            self.client, s.keys_of(FleetKeys), [self.now_ms, fresh, kind, record, max(times, 1), KEEP_MS, MOST]
        )
        return str(id_)

    async def list(self, *, unacknowledged: bool = False, limit: int = 1000) -> list[WarningView]:
        """The newest first."""
        oldest_ms = int(self.now_ms or await Registry(self.client).clock_ms()) - KEEP_MS
        found: list[WarningView] = []
        for first in range(0, MOST, _PAGE):
            with translated():
                page = await self.client.zrange(
                    FleetKeys.warning_times, "+inf", f"({oldest_ms}", desc=True, byscore=True,
                    offset=first, num=_PAGE, withscores=True,
                )  # fmt: skip
                records = await self.client.hmget(FleetKeys.warnings, [id_ for id_, _ in page]) if page else []
            for (id_, last_ms), record in zip(page, records, strict=True):
                # One that was forgotten between the two calls has no record any more.
                if record is not None and not (unacknowledged and record[0] == "1"):
                    found.append(_warning(id_, int(last_ms), record))
                    if len(found) == limit:
                        return found
            if len(page) < _PAGE:
                break
        return found

    async def acknowledge(self, id_: str) -> bool:
        """False for one that is not there. Idempotent."""
        return bool(id_) and await self._acknowledge(id_) >= 0

    async def acknowledge_all(self) -> int:
        """How many there were to acknowledge."""
        return max(0, await self._acknowledge(""))

    async def _acknowledge(self, id_: str) -> int:
        s = script("acknowledge")
        return int(await s(self.client, s.keys_of(FleetKeys), [id_]))


def severity_of(text: str) -> Severity:
    """One that we do not know is shown as WARN: no warning is lost because of its name."""
    upper = text.upper()
    return next((known for known in get_args(Severity) if known == upper), "WARN")


def _warning(id_: str, last_ms: int, record: str) -> WarningView:
    count, first_ms, _, category, severity, source, message = record[1:].split(SEP)
    return WarningView(
        id_, category, severity_of(severity), message, source, int(count), int(first_ms), last_ms, record[0] == "1"
    )


def _clean(text: str, most: int) -> str:
    """On one line, without what separates the fields of our records."""
    return "".join(char if char.isprintable() else " " for char in text[:most])
