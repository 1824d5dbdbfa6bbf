"""The page: one file that needs no other, no script and no network."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from html import escape
from pathlib import Path

from fleet.words import number
from spark.report import words
from spark.report.findings import Findings, Row
from spark.report.plots import PLOTS, slowest
from spark.report.style import STYLE
from spark.report.words import count, duration, endpoint_name, group_name, share

_ROWS = 10
_INVERSIONS = 20
_NARROW = "(max-width: 34rem)"
_NIGHT = "(prefers-color-scheme: dark)"


def write_page(findings: Findings, plots: Sequence[str], file: Path) -> None:
    """In one step: a reload meanwhile shows the old page or the new one."""
    page = page_of(findings, {name: _picture(name, file.parent / "plots") for name in plots})
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    draft.write_text(page, encoding="utf-8")
    draft.replace(file)


def page_of(findings: Findings, pictures: dict[str, str]) -> str:
    """`pictures`: each plot's HTML by its name."""
    body = [_head(findings)]
    if findings.messages:
        body += [
            _figures(findings),
            _order(findings),
            _section("Volume and outcome", "Attempts by when they began.", pictures.get("outcomes", "")),
            _section("Latency", "How long an endpoint took to answer.", pictures.get("latency", "")),
            _endpoints(findings, pictures.get("endpoints", "")),
            _retries(findings, pictures.get("tries", "")),
            _pools(findings),
        ]
    body += [_statuses(findings), _foot(findings)]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">\n"
        f"<title>Delivery report: {escape(words.headline(findings))}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{''.join(part for part in body if part)}</main>\n</body>\n</html>\n"
    )


def _picture(name: str, folder: Path) -> str:
    """The browser takes the variant that fits its width and its colours, and decodes no other."""

    def data(suffix: str) -> str:
        return "data:image/png;base64," + base64.b64encode((folder / f"{name}{suffix}.png").read_bytes()).decode()

    says = next(plot.says for plot in PLOTS if plot.name == name)
    return (
        f'<picture><source media="{_NARROW} and {_NIGHT}" srcset="{data("-narrow-dark")}">'
        f'<source media="{_NARROW}" srcset="{data("-narrow")}"><source media="{_NIGHT}" srcset="{data("-dark")}">'
        f'<img src="{data("")}" alt="{escape(says)}"></picture>'
    )


def _head(findings: Findings) -> str:
    when = words.period(findings.summary["from_ms"], findings.summary["to_ms"]) if findings.messages else ""
    return (
        f'<header><p class="kicker"><b>Fleet delivery report</b> {escape(when)}</p>'
        f'<h1>{escape(words.headline(findings))}</h1><p class="lead">{escape(words.subline(findings))}</p></header>\n'
    )


def _figures(findings: Findings) -> str:
    summary = findings.summary
    missing = findings.messages - findings.delivered
    latency, wait = ([duration(summary[f"{kind}{p}_ms"]) for p in ("p50", "p95", "p99")] for kind in ("", "wait_"))
    figures = [
        ("Delivered", share(findings.delivered, findings.messages), f"{count(missing)} are not" if missing else "all"),
        ("Failed attempts", count(summary["failed"]), f"{share(summary['failed'], summary['attempts'])} of all"),
        ("Retries", count(summary["retried"]), "attempts after the first"),
        ("Duplicates", count(summary["duplicates"]), "delivered once more"),
        ("Latency, p99", latency[2], f"p50 {latency[0]}, p95 {latency[1]}"),
        ("Wait, p99", wait[2], f"p50 {wait[0]}, for the first attempt"),
    ]  # fmt: skip
    cells = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(note)}</small></dd></div>"
        for name, value, note in figures
    )
    return f'<dl class="figures">{cells}</dl>\n'


def _order(findings: Findings) -> str:
    seen = "; ".join(
        f"{number(row['judged'], 'message')} in {number(row['groups'], 'group')}, by {row['witness']}"
        for row in sorted(findings.judged, key=lambda row: str(row["witness"]))
    )
    if findings.inverted:
        shown = findings.inversions[:_INVERSIONS]
        rows = [
            [group_name(row["msg_group"]), row["id"], row["overtaken_by"], row["witness"],
             words.short_moment(row["first_ms"])]
            for row in shown
        ]  # fmt: skip
        more = findings.inverted - len({row["id"] for row in shown})
        note = f'<p class="muted">and {count(more)} more, in tables/out_of_order.parquet</p>' if more > 0 else ""
        table = _table(["group", "message", "overtaken by", "seen by", "began"], rows, text=(1, 2, 3))
        return _verdict("bad", f"{count(findings.inverted)} out of order", f"Looked at: {seen}.") + table + note
    if not findings.judged:
        return _verdict("none", "Order was not judged", "No message of a group that promises an order was delivered.")
    return _verdict("good", "0 out of order", f"Looked at: {seen}.")


def _verdict(kind: str, said: str, why: str) -> str:
    return f'<div class="verdict {kind}"><strong>{escape(said)}</strong><p>{escape(why)}</p></div>\n'


def _endpoints(findings: Findings, picture: str) -> str:
    head = ["endpoint", "attempts", "failed", "p50", "p95", "p99"]
    slow = [
        [endpoint_name(row["endpoint"]), count(row["attempts"]), share(row["failed"], row["attempts"]),
         *(duration(row[column]) for column in ("p50_ms", "p95_ms", "p99_ms"))]
        for row in slowest(findings)[:_ROWS]
    ]  # fmt: skip
    bad = sorted((row for row in findings.endpoints if row["failed"]), key=_by_failures)[:_ROWS]
    failing = [
        [endpoint_name(row["endpoint"]), count(row["failed"]), share(row["failed"], row["attempts"]),
         row["most_frequent_error"] or "–"]
        for row in bad
    ]  # fmt: skip
    parts = [picture, "<h3>Slowest</h3>", _table(head, slow), "<h3>Most failing</h3>"]
    if failing:
        parts.append(_table(["endpoint", "failed", "of its attempts", "most frequent error"], failing, text=(3,)))
    else:
        parts.append('<p class="muted">No attempt failed.</p>')
    known = number(len(findings.endpoints), "endpoint")
    return _section("Endpoints", f"{known}, addresses without their queries.", "".join(parts))


def _by_failures(row: Row) -> tuple[int, str]:
    return -row["failed"], row["endpoint"]


def _retries(findings: Findings, picture: str) -> str:
    first = sum(row["delivered"] for row in findings.tries if row["tries"] == 1)
    said = f"{share(first, findings.messages)} of the messages were delivered by their first attempt alone."
    return _section("Retries", said, picture)


def _pools(findings: Findings) -> str:
    rows = [
        [row["pool"], count(row["attempts"]), count(row["failed"]), count(row["retried"]), duration(row["p50_ms"]),
         duration(row["p99_ms"]), duration(row["wait_p50_ms"]), duration(row["wait_p99_ms"])]
        for row in sorted(findings.pools, key=lambda row: (-row["attempts"], row["pool"]))[:_ROWS]
    ]  # fmt: skip
    head = ["pool", "attempts", "failed", "retries", "p50", "p99", "wait p50", "wait p99"]
    more = len(findings.pools) - _ROWS
    note = f"The {_ROWS} busiest of {count(len(findings.pools))}." if more > 0 else ""
    return _section("Pools", note, _table(head, rows))


def _statuses(findings: Findings) -> str:
    if not findings.statuses:
        return ""
    rows = [[status, count(number)] for status, number in sorted(findings.statuses.items())]
    return _section("Jobs in the store now", "", _table(["status", "jobs"], rows))


def _section(title: str, note: str, content: str) -> str:
    said = f'<p class="muted">{escape(note)}</p>' if note else ""
    return f"<section><h2>{escape(title)}</h2>{said}{content}</section>\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]], *, text: Sequence[int] = ()) -> str:
    def cells(tag: str, values: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=text' if place in text else ''}>{escape(value)}</{tag}>"
            for place, value in enumerate(values)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    # On a phone, the first of many columns gets a line of its own.
    shape = f' class=many style="--columns:{len(head) - 1}"' if len(head) > 3 else ""
    top = f"<thead><tr>{cells('th', head)}</tr></thead>"
    return f'<div class="table"><table{shape}>{top}<tbody>{body}</tbody></table></div>'


def _foot(findings: Findings) -> str:
    since = f"from {words.moment(findings.since_ms)} on" if findings.since_ms else "everything there is"
    facts = [
        ("Generated", words.moment(findings.generated_ms)),
        ("Asked for", since),
        ("Attempts from", words.period(findings.summary["from_ms"], findings.summary["to_ms"])),
        ("Read", findings.sources),
        ("Beside this page", "tables/*.parquet, plots/*.png"),
    ]
    if not findings.messages:
        facts = [fact for fact in facts if fact[0] not in ("Attempts from", "Beside this page")]
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(fact)}</dd>" for name, fact in facts)
    return (
        f"<footer><dl>{listed}</dl><p>An attempt is one request. A message waits from when it was made, or was to go, "
        "until its first attempt begins. Out of order is a message that another one behind it in its group overtook: "
        "first attempts of NEXT_ON_ERROR, all attempts before a BLOCK_ON_ERROR; IMMEDIATE promises no order.</p>"
        "</footer>\n"
    )
