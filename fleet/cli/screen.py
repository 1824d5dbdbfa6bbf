"""Lines that stay and one that is rewritten, on stderr: what a long command says while it runs."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable

import click


class Screen:
    """`quiet`: says nothing. Without a terminal, `show` is `None`."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._shown = False
        self.show: Callable[[str], None] | None = self._show if sys.stderr.isatty() and not quiet else None

    def say(self, text: str) -> None:
        self.clear()
        if not self._quiet:
            click.echo(text, err=True)

    def clear(self) -> None:
        if self._shown:
            click.echo("\r\x1b[K", err=True, nl=False)
            self._shown = False

    def _show(self, text: str) -> None:
        # A line that wraps could not be erased again.
        width = shutil.get_terminal_size().columns - 1
        click.echo(f"\r\x1b[K{text[:width]}", err=True, nl=False)
        self._shown = True
