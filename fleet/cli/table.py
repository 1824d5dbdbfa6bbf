"""Tables for people: as wide as they need, no wider than the terminal."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from typing import Any

import click

_GAP = "  "
_LEAST = 8


def show_json(document: Any) -> None:
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def show_table(titles: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str) -> None:
    """Numbers to the right, words to the left. The widest column gives way where the terminal is narrow."""
    if not rows:
        click.echo(empty)
        return
    cells = [[_text(cell) for cell in row] for row in rows]
    right = [all(_is_number(row[i]) for row in rows) for i in range(len(titles))]
    widths = [max(len(title), *(len(row[i]) for row in cells)) for i, title in enumerate(titles)]
    terminal = shutil.get_terminal_size((120, 24)).columns
    while sum(widths) + len(_GAP) * (len(widths) - 1) > terminal and max(widths) > _LEAST:
        widths[widths.index(max(widths))] -= 1
    for row in [list(titles), *cells]:
        parts = [
            _cut(cell, width).rjust(width) if to_right else _cut(cell, width).ljust(width)
            for cell, width, to_right in zip(row, widths, right, strict=True)
        ]
        click.echo(_GAP.join(parts).rstrip())


def tell_some(kind: str, lines: Sequence[str], count: int) -> None:
    """Some of `count` things on stderr, and how many more there are."""
    for line in lines:
        click.echo(f"{kind}: {line}", err=True)
    if count > len(lines):
        click.echo(f"{kind}: {count - len(lines)} more", err=True)


def _is_number(cell: object) -> bool:
    return cell is None or (isinstance(cell, int | float) and not isinstance(cell, bool))


def _text(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return f"{cell:,.1f}"
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, list):
        return ", ".join(map(str, cell)) or "-"
    return str(cell)


def _cut(text: str, width: int) -> str:
    # Names differ at their end: keep both ends.
    if len(text) <= width:
        return text
    head = (width - 1) // 3
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"
