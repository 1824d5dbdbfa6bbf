"""Why a scenario has no figure."""

from __future__ import annotations


class BenchError(Exception):
    """Something the benchmark needs is missing or went wrong; its text is the one line its user reads."""
