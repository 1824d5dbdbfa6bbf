"""The kinds of queues: each is a folder in `fleet/sources/`, known by the schemes of its URIs.

The table stands alone, below the adapters: the configuration names the schemes that it knows, and may not import them.
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
KIND_OF: Mapping[str, str] = {scheme: kind for kind, schemes in SCHEMES.items() for scheme in schemes}
