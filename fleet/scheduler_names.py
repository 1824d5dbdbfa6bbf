"""Where seed 004 names things otherwise than our settings do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fleet.errors import InvalidConfig

SCHEDULER = "dispatch-scheduler"
"""The prefix of seed 004's properties: a table of fleet.toml too, with their own names."""
_URIS_OF: Mapping[str, tuple[str, ...]] = {
    "EMBEDDED": ("sqlite:",),
    "SQS": ("sqs:", "http:", "https:"),
    "ACTIVEMQ": ("stomp:",),
}


def name_queue(values: dict[tuple[str, str], Any], *, base: Path) -> None:
    """Seed 004 has a kind of queue and a place for it, we have a URI that says both."""
    kind = values.get(("feed", "queue_type"))
    if not kind:
        return
    if kind == "EMBEDDED" and ("feed", "queue_url") not in values:
        file = base / (values.get(("feed", "embedded_db_path")) or values["", "data_dir"] / "dispatch-queue.db")
        values["feed", "queue_url"] = f"sqlite:///{file}?queue=dispatch"
    if not str(values.get(("feed", "queue_url"), "")).lower().startswith(_URIS_OF[kind]):
        wanted = " or ".join(f"{prefix}//…" for prefix in _URIS_OF[kind])
        raise InvalidConfig(f"[feed] queue_type is {kind}: queue_url must be {wanted}")
