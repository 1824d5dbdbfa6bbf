"""The page: what it says of what was found, that it needs nothing from elsewhere, and that it is well-formed."""

from __future__ import annotations

import dataclasses
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from spark.report.findings import NOTHING, STEPS_MS, Findings, step_for
from spark.report.page import page_of, write_page
from spark.report.plots import LOOKS, PLOTS, draw
from spark.report.words import duration, headline, one_line, share
from spark.transforms.report import FAILURES

HOUR = 3_600_000
VOID = {"meta", "img", "source"}
NEEDS_ANOTHER = {"script", "link", "iframe", "object", "embed", "base", "form"}


class Page(HTMLParser):
    """What a page holds; assertion errors where a tag is not closed as it was opened."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.tags: set[str] = set()
        self.text = ""
        self.html = html
        self.feed(html)
        assert self.open == []
        self.text = " ".join(self.text.replace("\N{NO-BREAK SPACE}", " ").split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "srcset", "href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data + " "


def measured(attempts: int, *, failed: int = 0, late: int = 0, **keys: Any) -> dict[str, Any]:
    return {
        **NOTHING, "attempts": attempts, "delivered": attempts - failed, "failed": failed, "error_process": failed,
        "retried": failed, "out_of_order": late, "most_frequent_error": "HTTP 503 <b>" if failed else None,
        "from_ms": HOUR, "to_ms": 2 * HOUR, "p50_ms": 3.0, "p95_ms": 40.0, "p99_ms": 1500.0, "wait_p50_ms": 700.0,
        "wait_p95_ms": 900.0, "wait_p99_ms": 61_000.0, **keys,
    }  # fmt: skip


def found(**changes: Any) -> Findings:
    endpoints = [
        measured(900, failed=50, endpoint="https://a.example/<script>$x$"),
        measured(150, endpoint="b%20c.ndjson", p95_ms=None),
    ]
    some = Findings(
        summary=measured(1050, failed=50), endpoints=endpoints, pools=[measured(1050, failed=50, pool="P")],
        timeline=[measured(1000, failed=50, bucket_ms=HOUR), measured(50, bucket_ms=HOUR + 300_000)], step_ms=60_000,
        tries=[{"tries": n, "messages": m, "delivered": m - (n == 9)} for n, m in ((1, 950), (2, 48), (7, 1), (9, 1))],
        statuses={"COMPLETED": 999, "ERROR": 1},
        judged=[{"witness": "the server's attempts", "judged": 900, "groups": 30}],
        generated_ms=3 * HOUR, sources="the job store",
    )  # fmt: skip
    return dataclasses.replace(some, **changes)


def words_of(findings: Findings) -> Page:
    return Page(page_of(findings, {}))


def drawn(findings: Findings, folder: Path) -> Page:
    (folder / "plots").mkdir(exist_ok=True)
    write_page(findings, draw(findings, folder / "plots"), folder / "report.html")
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def test_the_page_says_what_was_found_and_when() -> None:
    page = words_of(found())
    for said in (
        "999 of 1,000 messages delivered, every group in order.",
        "1 January 1970, 01:00:00 to 02:00:00 UTC",
        "0 out of order",
        "900 messages in 30 groups, by the server's attempts",
        "Latency, p99 1.5 s",
        "Wait, p99 1 min",
        "https://a.example/<script>$x$ 50 5.6 % HTTP 503 <b>",
        "95 % of the messages were delivered by their first attempt alone.",
        "COMPLETED 999",
        "Generated 1 January 1970, 03:00:00 UTC",
    ):
        assert said in page.text, said


def test_the_page_needs_nothing_from_elsewhere_and_nothing_keeps_no_old_plots(tmp_path: Path) -> None:
    page = drawn(found(), tmp_path)
    assert len(page.addresses) == len(PLOTS) * len(LOOKS)
    assert all(address.startswith("data:image/png;base64,iVBOR") for address in page.addresses)
    assert not page.tags & NEEDS_ANOTHER
    assert "default-src 'none'" in page.html
    assert "@import" not in page.html
    assert sorted(file.name for file in (tmp_path / "plots").iterdir()) == sorted(
        f"{plot.name}{look.suffix}.png" for plot in PLOTS for look in LOOKS
    )
    assert drawn(nothing(), tmp_path).addresses == []
    assert list((tmp_path / "plots").iterdir()) == []


def nothing() -> Findings:
    return Findings(summary=NOTHING, statuses={"PENDING": 7}, generated_ms=HOUR, sources="the job store")


def test_what_came_out_of_order_is_in_the_headline_and_in_a_list() -> None:
    row = {
        "witness": "the server's attempts", "msg_group": "order-<1>", "id": "late", "mode": "NEXT_ON_ERROR",
        "overtaken_by": "early", "first_ms": 2.0 * HOUR,
    }  # fmt: skip
    page = words_of(found(inversions=[row], inverted=3))
    assert "999 of 1,000 messages delivered, 3 out of order." in page.text
    assert "order-<1> late early the server's attempts 1 Jan, 02:00:00" in page.text
    assert "and 2 more, in tables/out_of_order.parquet" in page.text
    assert "every group in order" not in page.html


def test_where_nothing_was_delivered_the_page_says_so() -> None:
    assert "Nothing was delivered yet. There is no attempt in the job store. 7 jobs in the" in words_of(nothing()).text
    assert one_line(nothing()) == "Nothing was delivered yet"


def test_order_that_nobody_promised_is_not_called_kept() -> None:
    unordered = found(judged=[])
    assert headline(unordered) == "999 of 1,000 messages delivered."
    assert "Order was not judged" in words_of(unordered).text


def test_one_attempt_is_enough_for_every_plot(tmp_path: Path) -> None:
    one = found(
        summary=measured(1), endpoints=[measured(1, endpoint="http://a", p50_ms=0.0, p95_ms=0.0, p99_ms=0.0)],
        timeline=[measured(1, bucket_ms=HOUR, p50_ms=None, p95_ms=None, p99_ms=None)],
        tries=[{"tries": 1, "messages": 1, "delivered": 1}],
    )  # fmt: skip
    assert "1 of 1 message delivered" in drawn(one, tmp_path).text


@pytest.mark.parametrize(
    ("ms", "said"),
    [(None, "–"), (0, "under 1 ms"), (12.4, "12 ms"), (1500, "1.5 s"), (60_000, "1 min"), (90_000_000, "1 d")],
)
def test_a_duration_is_said_in_its_largest_unit(ms: float | None, said: str) -> None:
    assert duration(ms).replace("\N{NO-BREAK SPACE}", " ") == said


@pytest.mark.parametrize(
    ("part", "whole", "said"),
    [(0, 0, "–"), (0, 9, "0 %"), (1, 10_000, "under 0.1 %"), (9999, 10_000, "over 99.9 %"), (1, 3, "33.3 %")],
)
def test_a_share_is_never_rounded_to_all_or_nothing(part: int, whole: int, said: str) -> None:
    assert share(part, whole).replace("\N{NO-BREAK SPACE}", " ") == said


def test_a_plot_has_no_more_steps_than_it_can_show() -> None:
    for span_ms in (0, 59_000, HOUR, 24 * HOUR, 365 * 24 * HOUR):
        step = step_for(0, span_ms)
        assert span_ms / step <= 90
        assert step == STEPS_MS[0] or span_ms / STEPS_MS[STEPS_MS.index(step) - 1] > 90
    assert step_for(None, None) == STEPS_MS[0]


def test_every_outcome_of_a_failure_has_a_column() -> None:
    assert {name.lower() for name in FAILURES} <= set(NOTHING)
