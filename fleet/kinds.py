"""The kinds of queues: each is a folder in `fleet/sources/`, known by the schemes of its URIs.

The table stands alone, below the adapters: the configuration needs the schemes but may not import the adapters.
"""

from __future__ import annotations

from collections.abc import Mapping

SCHEMES: Mapping[str, tuple[str, ...]] = {
    "activemq": ("stomp",),
    "nats": ("nats",),
    "own": ("fleet",),
    "sqlite": ("sqlite",),
    "sqs": ("sqs", "http", "https"),
}
SHARED: Mapping[str, str] = {"fleet://subscription/": "topics", "fleet://topic/": "topics"}
"""Kinds without a scheme of their own: how their URIs begin, and the folder."""
KIND_OF: Mapping[str, str] = {scheme: kind for kind, schemes in SCHEMES.items() for scheme in schemes}


def kind_of(uri: str) -> str | None:
    """None for an unknown scheme, and for a text without one."""
    scheme, colon, _ = uri.partition(":")
    start = uri[: uri.find("/", len(scheme) + 3) + 1].lower()
    return SHARED.get(start) or (KIND_OF.get(scheme.lower()) if colon else None)
