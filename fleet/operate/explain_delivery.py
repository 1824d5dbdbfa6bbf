"""Since when a worker has been delivering a message, and until when at the latest: by its lease, and by what the worker
says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleet.operate.explanation import Explanation
from fleet.process import MOST_DELIVERIES
from fleet.state.groups import GroupView
from fleet.words import at, moment

_HEARD_OF_AFTER = "two seconds"
"""A worker names what has lasted a second, in a heartbeat each second."""


def processing(
    subject: str, code: str, view: GroupView, details: list[str], *, processes: Sequence[dict[str, Any]], now_ms: int
) -> Explanation:
    worker, lease_end_ms = view.worker, view.until_ms or 0
    # An epoch is the time at which it was granted, except where two fell into one microsecond.
    granted_ms = int(view.epoch or 0) // 1000
    details.append(
        f"Worker {worker} has been delivering its group since {moment(granted_ms)}, under epoch {view.epoch}."
    )
    record = next((one for one in processes if one.get("name") == worker), None)
    if record is None:
        details.append("That worker is gone; its lease is not renewed.")
        waits_for = f"the lease of worker {worker} to end; another delivers it then"
        return Explanation(subject, "PROCESSING", waits_for, lease_end_ms, details)
    details.append(f"Its lease ends {at(lease_end_ms)}, and is renewed for as long as the delivery lasts.")
    told = next((one for one in record.get("deliveries", ()) if _is_of(one, code, view)), None)
    if told is None:
        timeout_ms = int(record.get("httpTimeoutMs", 0))
        began = f"began within the last {_HEARD_OF_AFTER}"
        if len(record.get("deliveries", ())) >= MOST_DELIVERIES:
            began += f", or is not among the {MOST_DELIVERIES} longest that its worker tells of"
        details.append(f"It {began}; an attempt lasts {timeout_ms / 1000:g} s at most.")
        waits_for = f"its endpoint to answer worker {worker}, or the HTTP timeout of that worker"
        return Explanation(subject, "PROCESSING", waits_for, now_ms + timeout_ms, details)
    attempt, of, until_ms = told["attempt"], told["of"], told["until"]
    next_one = f"attempt {attempt + 1} of {of}"
    if not told["asking"]:
        details.append(f"Attempt {attempt} of {of}, begun {at(told['began'])}, has failed.")
        return Explanation(subject, "PROCESSING", f"{next_one}, after a pause", until_ms, details)
    details.append(f"Attempt {attempt} of {of} began {at(told['began'])}, and is given up {at(until_ms)}.")
    then = f"{next_one} follows" if attempt < of else f"it has failed, and the policy of pool {code} says what follows"
    details.append(f"If its endpoint does not answer before, {then}.")
    waits_for = f"its endpoint to answer worker {worker}, or attempt {attempt} of {of} to be given up"
    return Explanation(subject, "PROCESSING", waits_for, until_ms, details)


def _is_of(told: dict[str, Any], code: str, view: GroupView) -> bool:
    return (told["pool"], told["group"], told["messageId"]) == (code, view.lane, view.head.message_id)
