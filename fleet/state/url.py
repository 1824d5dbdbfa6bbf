"""The URL of a Redis: how it is shown, and what is wrong with one that cannot be used."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

SENTINEL_SCHEMES = ("sentinel", "sentinels")
"""The second means TLS, to the sentinels and to the master."""
_SCHEMES = ("redis", "rediss", "unix", *SENTINEL_SCHEMES)
_SECRET_OPTION = re.compile(r"(?:sentinel_)?(?:username|password)=")
_OPTION = re.compile(r"(?:Invalid value for|argument) '(\w+)'")


class WrongUrl(ValueError):
    """What is wrong with a URL, in words that quote nothing of it."""


def safe_url(url: str) -> str:
    """The URL without its user and password, even if they stand among its options, or are not percent-encoded."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{_past_user(rest).partition('?')[0].partition('#')[0]}" if rest else url.rpartition("@")[2]


def why_not(url: str, error: Exception) -> str:
    """Why it cannot be used, given what its reader said; quotes nothing of a password."""
    scheme, _, rest = url.partition("://")
    if scheme.lower() not in _SCHEMES:
        return f"it begins with one of {', '.join(f'{known}://' for known in _SCHEMES)}"
    if re.search(r"[/?#\[\]]", rest.removesuffix(_past_user(rest))) and scheme.lower() != "unix":
        return "percent-encode @ and / in a password (%40, %2F)"
    if found := _OPTION.search(str(error)):
        return (
            f"unknown option {found[1]}"
            if isinstance(error, TypeError)
            else f"the option {found[1]} cannot have that value"
        )
    if str(error).startswith("Port "):
        return "its port must be a number up to 65535"
    # The words of urllib may quote all of it.
    return str(error) if isinstance(error, WrongUrl) else ""


def check_path(url: str) -> None:
    """Raise WrongUrl for a database that is not a number; redis-py would take the first one instead."""
    parts = urlsplit(url)
    if parts.scheme.lower() in ("redis", "rediss") and (db := parts.path.strip("/")) and not db.isdecimal():
        raise WrongUrl("its database must be a number")


def _past_user(rest: str) -> str:
    """What stands behind the user and the password: even one that is not encoded never shows, whatever is in it."""
    address, _, options = rest.partition("?")
    if all("@" not in option or _SECRET_OPTION.match(option) for option in options.split("&")):
        return rest[len(address) - len(address.rpartition("@")[2]) :]
    return rest.rpartition("@")[2]
