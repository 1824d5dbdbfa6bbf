"""Where seed 004 names things differently from our settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleet.errors import InvalidConfig
from fleet.kinds import SCHEMES

SCHEDULER = "dispatch-scheduler"
"""The prefix of seed 004's properties. A table of fleet.toml may have this name too, with their names in it."""
_KINDS: Mapping[str, str] = {"EMBEDDED": "sqlite", "SQS": "sqs", "ACTIVEMQ": "activemq"}


def name_queue(values: dict[tuple[str, str], Any], *, base: Path) -> None:
    """Seed 004 has one property for the kind of queue and one for its place; our URI says both."""
    kind = values.get(("feed", "queue_type"))
    if not kind:
        return
    if kind == "EMBEDDED" and ("feed", "queue_url") not in values:
        file = base / (values.get(("feed", "embedded_db_path")) or values["", "data_dir"] / "dispatch-queue.db")
        values["feed", "queue_url"] = f"sqlite:///{file}?queue=dispatch"
    schemes = SCHEMES[_KINDS[kind]]
    if not str(values.get(("feed", "queue_url"), "")).lower().startswith(tuple(f"{scheme}:" for scheme in schemes)):
        wanted = " or ".join(f"{scheme}://…" for scheme in schemes)
        raise InvalidConfig(f"[feed] queue_type is {kind}: queue_url must be {wanted}")
