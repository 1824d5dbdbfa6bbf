"""Where seed 004 names things otherwise than our settings do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleet.errors import InvalidConfig
from fleet.kinds import SCHEMES

SCHEDULER = "dispatch-scheduler"
"""The prefix of seed 004's properties: a table of fleet.toml too, with their own names."""
_KINDS: Mapping[str, str] = {"EMBEDDED": "sqlite", "SQS": "sqs", "ACTIVEMQ": "activemq"}


def name_queue(values: dict[tuple[str, str], Any], *, base: Path) -> None:
    """Seed 004 has a kind of queue and a place for it, we have a URI that says both."""
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
