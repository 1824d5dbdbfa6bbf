"""One line out of what Spark says when something goes wrong, which is often hundreds of lines."""

from __future__ import annotations


def in_a_line(text: str) -> str:
    """What happened. Looked for in this order: an error of ours, what executors lack, the first line, the cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["an error without words"]
    for told in (
        [line for line in lines if line.startswith(("fleet.errors.", "sqlalchemy.", "psycopg."))],
        [line[line.index("Cannot run program") :] for line in lines if "Cannot run program" in line],
        [line for line in lines if line.startswith(("ModuleNotFoundError:", "ImportError:"))],
        [lines[0]] if not lines[0].startswith("An error occurred while calling") else [],
        [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")],
    ):
        if told:
            return told[-1][:500]
    return " ".join(lines)[:500]
