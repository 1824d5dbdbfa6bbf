"""Numbers, times and sentences, as the page says them."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import unquote

from fleet.words import number
from spark.report.findings import Findings

OUTCOMES = {
    "delivered": "delivered",
    "error_process": "refused or failed",
    "error_connection": "no connection",
    "error_config": "wrong request (4xx)",
    "not_sent": "not sent",
    "fenced": "fenced",
}
"""Columns of a measured table → what people call that."""


_SPACE = "\N{NO-BREAK SPACE}"


def count(of: int) -> str:
    return f"{of:,}"


def duration(ms: float | None) -> str:
    if ms is None:
        return "–"
    if ms < 1:
        return f"under 1{_SPACE}ms"
    for unit_ms, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if ms >= unit_ms:
            return f"{ms / unit_ms:.1f}".removesuffix(".0") + _SPACE + unit
    return f"{ms:.0f}{_SPACE}ms"


def share(part: int, whole: int) -> str:
    """Never rounded up to all, nor down to nothing."""
    if whole == 0:
        return "–"
    percent = 100 * part / whole
    if 0 < percent < 0.1:
        return f"under 0.1{_SPACE}%"
    if 99.9 < percent < 100:
        return f"over 99.9{_SPACE}%"
    return f"{percent:.1f}".removesuffix(".0") + f"{_SPACE}%"


def moment(ms: int) -> str:
    return _at(ms).strftime("%-d %B %Y, %H:%M:%S UTC")


def short_moment(ms: float) -> str:
    return _at(ms).strftime("%-d %b, %H:%M:%S")


def period(from_ms: int | None, to_ms: int | None) -> str:
    if from_ms is None or to_ms is None:
        return "no time at all"
    begin, end = _at(from_ms), _at(to_ms)
    if begin.date() == end.date():
        return f"{begin:%-d %B %Y, %H:%M:%S} to {end:%H:%M:%S} UTC"
    return f"{begin:%-d %B %Y, %H:%M} to {end:%-d %B %Y, %H:%M} UTC"


def group_name(group: str | None) -> str:
    return "no group" if group is None else group or "(empty)"


def endpoint_name(endpoint: str) -> str:
    """A journal is named by its file's URL, which escapes some characters of the name."""
    return endpoint if "://" in endpoint else unquote(endpoint)


def headline(findings: Findings) -> str:
    if not findings.messages:
        return "Nothing was delivered yet." if not findings.since_ms else "Nothing was delivered in this time."
    whole, done = findings.messages, findings.delivered
    said = f"{count(done)} of {number(whole, 'message')} delivered"
    if findings.inverted:
        return f"{said}, {count(findings.inverted)} out of order."
    if findings.judged_messages:
        return f"{said}, every group in order."
    return f"{said}."


def subline(findings: Findings) -> str:
    summary = findings.summary
    if not findings.messages:
        waiting = f" {number(findings.waiting, 'job')} in the store not finished yet." if findings.waiting else ""
        return f"There is no attempt in {findings.sources}.{waiting}"
    failed = count(summary["failed"]) if summary["failed"] else "none"
    parts = [
        f"{number(summary['attempts'], 'attempt')}, {failed} of them failed.",
        f"Half of them took {duration(summary['p50_ms'])} or less, 99 of 100 {duration(summary['p99_ms'])} or less.",
    ]
    if summary["wait_p50_ms"] is not None:
        parts.append(
            f"Half of the messages waited {duration(summary['wait_p50_ms'])} or less for their first attempt, "
            f"99 of 100 {duration(summary['wait_p99_ms'])} or less."
        )
    return " ".join(parts)


def one_line(findings: Findings) -> str:
    """What the terminal says."""
    said = headline(findings).removesuffix(".")
    if findings.messages:
        said += f"; p50 {duration(findings.summary['p50_ms'])}, p99 {duration(findings.summary['p99_ms'])}"
    return said.replace(_SPACE, " ")


def _at(ms: float) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)
