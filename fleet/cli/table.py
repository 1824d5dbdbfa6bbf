"""Tables for people: as wide as they need, no wider than the terminal; prose is never cut."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import click

_GAP = "  "
_LEAST, _LEAST_PROSE = 8, 30
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | dict.fromkeys(map(ord, "\t\n\r"), " ")


def show_json(document: Any) -> None:
    click.echo(json.dumps(document, indent=2, ensure_ascii=False))


def show_table(
    titles: Sequence[str], rows: Sequence[Sequence[object]], *, empty: str, ends_in_prose: bool = False
) -> None:
    """Numbers to the right, words to the left. The widest column gives way where the terminal is narrow.

    `ends_in_prose`: the last column is to be read, so nothing of it is cut: a terminal shows it in several lines.
    """
    if not rows:
        click.echo(empty)
        return
    cells = [[_text(cell) for cell in row] for row in rows]
    right = [all(_is_number(row[i]) for row in rows) for i in range(len(titles))]
    widths = [max(len(title), *(len(row[i]) for row in cells)) for i, title in enumerate(titles)]
    terminal = shutil.get_terminal_size((120, 24)).columns
    if ends_in_prose:
        _show_prose([list(titles), *cells], widths, right, terminal)
        return
    while sum(widths) + len(_GAP) * (len(widths) - 1) > terminal and max(widths) > _LEAST:
        widths[widths.index(max(widths))] -= 1
    for row in [list(titles), *cells]:
        click.echo(_line(row, widths, right))


def _show_prose(rows: list[list[str]], widths: list[int], right: list[bool], terminal: int) -> None:
    indent = sum(widths[:-1]) + len(_GAP) * (len(widths) - 1)
    if sys.stdout.isatty():
        widths = [*widths[:-1], min(widths[-1], max(terminal - indent, _LEAST_PROSE))]
    for row in rows:
        first, *more = textwrap.wrap(row[-1], widths[-1]) or [""]
        click.echo(_line([*row[:-1], first], widths, right))
        for line in more:
            click.echo(" " * indent + line)


def _line(row: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    parts = [
        _cut(cell, width).rjust(width) if to_right else _cut(cell, width).ljust(width)
        for cell, width, to_right in zip(row, widths, right, strict=True)
    ]
    return _GAP.join(parts).rstrip()


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
        return ", ".join(map(_text, cell)) or "-"
    # What strangers sent is shown too: it must not break a row, nor write to the terminal.
    return str(cell).translate(_CONTROLS)


def _cut(text: str, width: int) -> str:
    # Names differ at their end: keep both ends.
    if len(text) <= width:
        return text
    head = (width - 1) // 3
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"
