"""The webhook of a job: its headers, and what the target's answer means."""

from __future__ import annotations

from fleet.delivery.classify import classify
from fleet.delivery.reply import Reply
from fleet.jobs.records import Job
from fleet.outcome import Delivered, Outcome


def request_headers(job: Job) -> list[str] | None:
    """None where a value would write headers of its own: rows may come from programs other than ours."""
    named = {
        "Idempotency-Key": job.id,
        "Fleet-Job": job.id,
        "Fleet-Sequence": str(job.sequence),
        "Fleet-Attempt": str(job.attempt),
    }
    if job.msg_group:
        named["Fleet-Group"] = job.msg_group
    if not all(value.isprintable() for value in named.values()):
        return None
    return [
        "Content-Type: application/json",
        "Accept: application/json",
        *(f"{name}: {value}" for name, value in named.items()),
    ]


def outcome_of(reply: Reply) -> Outcome:
    """As for any delivery, but every 2xx is a success: receivers of webhooks know nothing of our `ack`."""
    if reply.error is None and 201 <= reply.status <= 299:
        return Delivered(reply.status)
    return classify(reply)
