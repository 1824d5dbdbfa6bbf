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
KIND_OF: Mapping[str, str] = {scheme: kind for kind, schemes in SCHEMES.items() for scheme in schemes}
