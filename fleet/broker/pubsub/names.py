"""`projects/P/topics/T` and our names.

There are no projects here: of a path only the last part counts, and whichever project is asked for shows everything.
What is told to a caller names his own project.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from fleet.broker.errors import InvalidArgument
from fleet.broker.names import check_subscription_name, check_topic_name

Kind = Literal["topics", "subscriptions"]
DELETED_TOPIC = "_deleted-topic_"
"""What Pub/Sub names as the topic of a subscription whose topic was deleted."""
_PROJECT = re.compile(r"projects/([^/]+)")
_PATH = re.compile(r"projects/([^/]+)/(topics|subscriptions)/([^/]+)")
MOST_A_PAGE = 1000
_CHECKS = {"topics": check_topic_name, "subscriptions": check_subscription_name}


class Named(NamedTuple):
    project: str
    name: str


def topic_of(path: str) -> Named:
    return _named("topics", path)


def subscription_of(path: str) -> Named:
    return _named("subscriptions", path)


def project_of(path: str) -> str:
    found = _PROJECT.fullmatch(path)
    if found is None:
        raise InvalidArgument(f"Invalid [projects] name: (name={path})")
    return found[1]


def topic_path(project: str, name: str) -> str:
    return f"projects/{project}/topics/{name}"


def subscription_path(project: str, name: str) -> str:
    return f"projects/{project}/subscriptions/{name}"


def page(names: list[str], size: int, token: str) -> tuple[list[str], str]:
    """So many of these sorted names behind that one, and the token of what follows; empty if nothing does."""
    if size < 0:
        raise InvalidArgument(f"page_size must be 0 or more, is {size}")
    behind = [name for name in names if name > token]
    most = min(size, MOST_A_PAGE) or MOST_A_PAGE
    return behind[:most], behind[most - 1] if len(behind) > most else ""


def _named(kind: Kind, path: str) -> Named:
    found = _PATH.fullmatch(path)
    if found is None or found[2] != kind:
        raise InvalidArgument(f"Invalid [{kind}] name: (name={path})")
    return Named(found[1], _CHECKS[kind](found[3]))
