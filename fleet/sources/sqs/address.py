"""What a URI says about an SQS queue. Read without boto3, so that refusing a bad one costs nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from fleet.errors import InvalidConfig

_HOSTS = (
    re.compile(r"(?:^|\.)sqs(?:-fips)?\.(?P<region>[a-z0-9-]+)\.(?:vpce\.)?(?:amazonaws\.com(?:\.cn)?|api\.aws)$"),
    re.compile(r"^(?P<region>[a-z0-9-]+)\.queue\.amazonaws\.com(?:\.cn)?$"),
)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}|[A-Za-z0-9_-]{1,75}\.fifo")
_REGION = re.compile(r"[a-z0-9-]*")
_FORMS = "sqs://REGION/NAME, sqs://REGION/ACCOUNT/NAME or the queue's URL"


@dataclass(frozen=True, slots=True)
class SqsAddress:
    name: str
    region: str
    """'' if the URI names none: boto3's own settings then do."""
    account: str = ""
    url: str = ""
    """The queue's URL; '' if the queue is looked up by its name."""

    @property
    def endpoint(self) -> str:
        """Scheme and host of the queue's URL; '' if there is no URL."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}" if self.url else ""

    @property
    def is_fifo(self) -> bool:
        """AWS requires this ending for every FIFO queue, and allows it for no other."""
        return self.name.endswith(".fifo")


def parse_address(uri: str) -> SqsAddress:
    """Read `sqs://REGION/NAME`, `sqs://REGION/ACCOUNT/NAME`, or `https://sqs.REGION.amazonaws.com/ACCOUNT/NAME`.

    `sqs:///NAME` leaves the region to boto3's own settings.
    """
    parts = urlsplit(uri)
    scheme = parts.scheme.lower()
    # What is refused is not repeated: it may hold a password.
    if "@" in parts.netloc:
        raise InvalidConfig("an SQS URI takes no user or password: credentials come from boto3's own chain")
    if parts.query or parts.fragment:
        raise InvalidConfig(f"an SQS URI takes no options ({_FORMS})")
    path = [part for part in parts.path.split("/") if part]
    if not path or not _NAME.fullmatch(path[-1]):
        raise InvalidConfig(f"an SQS URI ends with the queue's name ({_FORMS})")
    return _named(parts, path) if scheme == "sqs" else _located(parts, path, scheme)


def _named(parts: SplitResult, path: list[str]) -> SqsAddress:
    if not _REGION.fullmatch(parts.netloc):
        raise InvalidConfig(f"sqs:// is followed by a region; a host is written as https:// ({_FORMS})")
    account = path[0] if len(path) == 2 else ""
    if len(path) > 2 or (account and not account.isdecimal()):
        raise InvalidConfig(f"between region and name an SQS URI has an account number at most ({_FORMS})")
    return SqsAddress(name=path[-1], region=parts.netloc, account=account)


def _located(parts: SplitResult, path: list[str], scheme: str) -> SqsAddress:
    if not parts.hostname:
        raise InvalidConfig(f"an SQS URL needs a host ({_FORMS})")
    found = next((match for host in _HOSTS if (match := host.search(parts.hostname))), None)
    url = f"{scheme}://{parts.netloc}/{'/'.join(path)}"
    return SqsAddress(name=path[-1], region=found["region"] if found else "", url=url)
