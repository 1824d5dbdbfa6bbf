"""Where a URL leads: scheme, host and port, written in one way. Never the path or the query.

With more in their key there would be a breaker for each message; with less, one host would answer for another.
"""

from __future__ import annotations

import re
import socket
from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address
from urllib.parse import unquote

_DEFAULT_PORT = {"http": 80, "https": 443}
_MAX_HOST_CHARACTERS = 253
_SCHEME_AND_AUTHORITY = re.compile(r"\s*([a-z][a-z0-9+.-]*://[^/?#]*)", re.IGNORECASE)
_NAME = re.compile(r"[^\x00-\x20\x7f/?#@:%\[\]\\<>^|]+")
_NUMERIC = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]+)){0,3}")


def origin_of(url: str) -> str:
    """`scheme://host` or `scheme://host:port`; '' for what is not an http or https URL."""
    found = _SCHEME_AND_AUTHORITY.match(url)
    return _parts(found.group(1))[0] if found else ""


def host_of(url: str) -> str:
    """The host of a URL as `origin_of` writes it, an IPv6 address without its brackets; '' for none."""
    found = _SCHEME_AND_AUTHORITY.match(url)
    return _parts(found.group(1))[1] if found else ""


def normal_host(host: str) -> str:
    """One spelling of a host: lower case, no closing dot, addresses as numbers are commonly written; '' if none."""
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else unquote(host)
    if ":" in host:
        try:
            return IPv6Address(host.partition("%")[0]).compressed
        except AddressValueError:
            return ""
    host = host.lower().removesuffix(".")
    if not host.isascii():
        try:
            host = host.encode("idna").decode()
        except UnicodeError:
            return ""
    if len(host) > _MAX_HOST_CHARACTERS or not _NAME.fullmatch(host):
        return ""
    if _NUMERIC.fullmatch(host):
        # As the resolver reads it: 127.1, 0x7f.1 and 2130706433 are one host.
        try:
            return socket.inet_ntoa(socket.inet_aton(host))
        except OSError:
            return ""
    return host


@lru_cache(maxsize=8192)
def _parts(scheme_and_authority: str) -> tuple[str, str]:
    scheme, _, authority = scheme_and_authority.partition("://")
    scheme = scheme.lower()
    address = authority.rpartition("@")[2]
    host, bracket, port = address.rpartition("]")
    if bracket:
        host, port = host + bracket, port.removeprefix(":") if port.startswith(":") or not port else "?"
    else:
        host, _, port = address.partition(":")
    host = normal_host(host)
    if scheme not in _DEFAULT_PORT or not host or not (port.isascii() and (port.isdigit() or not port)):
        return "", ""
    number = int(port[-9:]) if port else _DEFAULT_PORT[scheme]
    if not 0 < number < 65536:
        return "", ""
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}" + ("" if number == _DEFAULT_PORT[scheme] else f":{number}"), host
