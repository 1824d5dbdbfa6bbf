"""What AddPermission and RemovePermission make of the policy of a queue: one statement a label, as AWS writes it.

A policy is kept and shown, and enforced on nobody: there are no accounts here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from fleet.broker.sqs import errors

MOST_STATEMENTS = 20


def permitted(policy: str, *, arn: str, label: str, accounts: Sequence[str], actions: Sequence[str]) -> str:
    """With one statement more."""
    found = _read(policy) or {"Version": "2008-10-17", "Id": f"{arn}/SQSDefaultPolicy"}
    statements = _statements(found)
    if any(one.get("Sid") == label for one in statements):
        raise errors.label_exists(label)
    if len(statements) >= MOST_STATEMENTS:
        raise errors.over_limit(f"A policy holds at most {MOST_STATEMENTS} statements.")
    added = {
        "Sid": label,
        "Effect": "Allow",
        "Principal": {"AWS": _one_or_all([f"arn:aws:iam::{account}:root" for account in accounts])},
        "Action": _one_or_all([f"SQS:{action}" for action in actions]),
        "Resource": arn,
    }
    return _written({**found, "Statement": [*statements, added]})


def forbidden(policy: str, *, label: str) -> str:
    """Without that statement; '' if it was the last."""
    found = _read(policy)
    statements = _statements(found)
    left = [one for one in statements if one.get("Sid") != label]
    if len(left) == len(statements):
        raise errors.no_such_label(label)
    return _written({**found, "Statement": left}) if left else ""


def _read(policy: str) -> dict[str, Any]:
    return msgspec.json.decode(policy, type=dict[str, Any]) if policy else {}


def _statements(policy: dict[str, Any]) -> list[dict[str, Any]]:
    """IAM takes one without a list around it too."""
    found = policy.get("Statement", [])
    return [one for one in (found if isinstance(found, list) else [found]) if isinstance(one, dict)]


def _one_or_all(found: list[str]) -> str | list[str]:
    return found[0] if len(found) == 1 else found


def _written(policy: dict[str, Any]) -> str:
    return msgspec.json.encode(policy).decode()
