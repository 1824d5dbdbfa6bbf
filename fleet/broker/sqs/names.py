"""Names of queues: what is one, and how URLs and ARNs carry it."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache

from fleet.broker.sqs import errors

ACCOUNT = "000000000000"
"""There are no accounts here: every queue belongs to this one."""
FIFO = ".fifo"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}\Z")
_FIFO_NAME = re.compile(r"[A-Za-z0-9_-]{1,75}\.fifo\Z")
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?\Z")
_ARN = re.compile(r"arn:(aws[a-z-]*):sqs:([a-z0-9-]{1,40}):([0-9]{12}):([A-Za-z0-9_-]{1,80}(?:\.fifo)?)\Z")


def is_fifo(name: str) -> bool:
    return name.endswith(FIFO)


def is_name(text: str) -> bool:
    return _NAME.match(text) is not None or _FIFO_NAME.match(text) is not None


def check_name(name: str, *, fifo: bool) -> None:
    """SqsError unless a queue of this kind can have this name."""
    if fifo and _FIFO_NAME.match(name) is None:
        raise errors.invalid_parameter(
            "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores,"
            " must end with .fifo suffix and be 1 to 80 in length."
        )
    if not fifo and _NAME.match(name) is None:
        raise errors.invalid_parameter(
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
        )


# URLs ----------------------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def base_url(scheme: str, host: str) -> str:
    """What our URLs begin with; SqsError if the Host of the request cannot be one."""
    if _HOST.match(host) is None:
        raise errors.invalid_address(host)
    return f"{scheme}://{host}"


def queue_url(base: str, name: str) -> str:
    return f"{base}/{ACCOUNT}/{name}"


def name_of_url(url: str) -> str:
    """Only the last segment of the path counts, so a URL stays good behind another host. Empty: it names no queue."""
    _, scheme, rest = url.partition("://")
    path = rest.partition("/")[2] if scheme else url
    for end in ("?", "#"):
        path = path.partition(end)[0]
    name = path.rstrip("/").rpartition("/")[2]
    return name if is_name(name) else ""


@lru_cache(maxsize=1024)
def is_loopback(host: str) -> bool:
    """Whether a Host header names this machine. A page in a browser can reach us, but not choose this header."""
    if _HOST.match(host) is None:
        return False
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    if name.lower() == "localhost" or name.lower().endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


# ARNs ----------------------------------------------------------------------------------------------


def arn(region: str, name: str) -> str:
    return f"arn:aws:sqs:{region}:{ACCOUNT}:{name}"


def name_of_arn(text: str) -> str:
    """Of an ARN of SQS, whatever its region and account; empty: it is none."""
    found = _ARN.match(text)
    return found[4] if found is not None and is_name(found[4]) else ""
