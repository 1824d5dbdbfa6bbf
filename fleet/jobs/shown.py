"""Jobs, attempts, events and subscriptions for people and scripts, in the words of a job's line."""

from __future__ import annotations

from typing import Any

import msgspec

from fleet.config.router import shown_uri
from fleet.jobs.records import Attempt, Event, Job, Subscription
from fleet.words import utc


def job_json(job: Job, *, payload: bool = False) -> dict[str, Any]:
    shown = {
        "id": job.id,
        "status": job.status,
        "attempt": job.attempt,
        "targetUrl": shown_uri(job.target_url),
        "mode": job.mode,
        "poolCode": job.pool,
        "messageGroup": job.msg_group,
        "sequence": job.sequence,
        "scheduledFor": moment(job.scheduled_ms),
        "expiresAt": moment(job.expires_ms),
        "maxRetries": job.max_retries,
        "timeoutSeconds": job.timeout_seconds,
        "idempotencyKey": job.idempotency_key,
        "source": job.source,
        "kind": job.kind,
        "code": job.code,
        "subject": job.subject,
        "eventId": job.event_id,
        "subscription": job.subscription,
        "createdAt": moment(job.created_ms),
        "queuedAt": moment(job.queued_ms),
        "queuedEpoch": job.queued_epoch,
        "claimedUntil": moment(job.claimed_until_ms),
        "completedAt": moment(job.completed_ms),
        "lastError": job.last_error,
    }
    return {**shown, "payload": content(job.payload)} if payload else shown


def attempt_json(attempt: Attempt) -> dict[str, Any]:
    return {
        "attempt": attempt.attempt,
        "startedAt": moment(attempt.started_ms),
        "endedAt": moment(attempt.ended_ms),
        "statusCode": attempt.status_code,
        "outcome": attempt.outcome,
        "error": attempt.error,
    }


def event_json(event: Event) -> dict[str, Any]:
    return {
        "id": event.id,
        "type": event.type,
        "group": event.msg_group,
        "payload": content(event.payload),
        "createdAt": moment(event.created_ms),
        "fannedOut": bool(event.fanned_out),
    }


def subscription_json(subscription: Subscription) -> dict[str, Any]:
    return {
        "name": subscription.name,
        "pattern": subscription.pattern,
        "targetUrl": shown_uri(subscription.target_url),
        "mode": subscription.mode,
        "poolCode": subscription.pool,
        "createdAt": moment(subscription.created_ms),
        "enabled": bool(subscription.enabled),
    }


def moment(ms: int | None) -> str | None:
    """ISO 8601 in UTC, with milliseconds. A number that cannot be a date is shown as it is."""
    if ms is None:
        return None
    try:
        return utc(ms)
    except (ValueError, OverflowError, OSError):
        return str(ms)


def content(payload: str) -> Any:
    """Decoded if it is JSON; other programs write into these tables too."""
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return payload
