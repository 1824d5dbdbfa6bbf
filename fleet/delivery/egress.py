"""Which hosts and addresses may be called: what `[egress]` allows, and never those where a cloud tells its secrets.

Addresses are judged when a connection is opened to them, not by the URL: `0x7f.1`, a DNS name, or an IPv6
form of an IPv4 address all lead to the same host, and a name may change between two look-ups.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from fleet.delivery.origin import host_of, normal_host
from fleet.errors import InvalidConfig

Network = IPv4Network | IPv6Network

_METADATA_V4 = (
    ip_network("169.254.0.0/16"),  # link-local: AWS, Azure, Google, ECS task credentials
    ip_network("100.100.100.200/32"),  # Alibaba
    ip_network("192.0.0.192/32"),  # Oracle
)
_METADATA_V6 = (
    ip_network("fe80::/10"),
    ip_network("fd00:ec2::23/128"),  # AWS: credentials of EKS pods
    ip_network("fd00:ec2::254/128"),  # AWS
    ip_network("fd20:ce::254/128"),  # Google
    ip_network("fd00:42::42/128"),  # Scaleway
)
# Prefixes whose last 32 bits are an IPv4 address that a translator, or our own kernel, calls instead.
_V4_IN_LOW_BITS = (
    ip_network("::ffff:0:0/96"),  # mapped
    ip_network("::ffff:0:0:0/96"),  # translated (SIIT)
    ip_network("::/96"),  # compatible, deprecated
    ip_network("64:ff9b::/96"),  # NAT64
    ip_network("64:ff9b:1::/48"),  # NAT64 of a site; the /96 layout is the one in use
)
_SIX_TO_FOUR = ip_network("2002::/16")
_TEREDO = ip_network("2001::/32")
_HOST_RULE = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?")


@dataclass(frozen=True, slots=True)
class _List:
    """One of the two lists, sorted by kind."""

    networks: tuple[Network, ...] = ()
    hosts: tuple[str, ...] = ()
    """`example.com` for the name and all beneath it, `.example.com` for only those beneath it."""

    def __bool__(self) -> bool:
        return bool(self.networks or self.hosts)

    def has_host(self, name: str) -> bool:
        return any(
            name.endswith(host) if host.startswith(".") else name == host or name.endswith(f".{host}")
            for host in self.hosts
        )


class Rules:
    """Deny wins over allow. An empty allow means everything but metadata services, which are never called.

    If allow names hosts, a host name must be one of them, and may lead to any address; an address in the URL itself
    must be in an allowed network. If allow has only networks, any name that leads there may be called. So ask both:
    `forbids_url` before the request, and `forbids_address` for each connection.
    """

    __slots__ = ("_allow", "_deny")

    def __init__(self, *, allow: _List, deny: _List) -> None:
        self._allow = allow
        self._deny = deny

    def forbids_url(self, url: str) -> bool:
        """Whether its host is forbidden. libcurl accepts URLs that we cannot read: those are forbidden too."""
        if not (self._allow or self._deny.hosts):
            return False  # only addresses are left to judge
        return self.forbids_host(host_of(url))

    def forbids_host(self, host: str) -> bool:
        """Whether a URL with this host, a name or an address, may not be called."""
        normal = normal_host(host)
        if not normal:
            return True
        address = _parsed(normal)
        if address is not None:
            return self._is_denied(address) or bool(self._allow and not _reaches(address, self._allow.networks))
        if self._deny.has_host(normal):
            return True
        return bool(self._allow.hosts) and not self._allow.has_host(normal)

    def forbids_address(self, text: str) -> bool:
        """Whether no connection may be opened to this numeric address. What is not an address is never called."""
        address = _parsed(text)
        if address is None or self._is_denied(address):
            return True
        if not self._allow or self._allow.hosts:
            return False  # the URL's host was allowed by its name
        return not _reaches(address, self._allow.networks)

    def _is_denied(self, address: IPv4Address | IPv6Address) -> bool:
        forms = (address, *_embedded_v4(address))
        return any(_is_metadata(form) or any(form in network for network in self._deny.networks) for form in forms)


def egress_rules(allow: Sequence[str], deny: Sequence[str]) -> Rules:
    """Networks (`10.0.0.0/8`), addresses (`::1`) and hosts (`example.com`, `*.example.com`) of `[egress]`."""
    return Rules(allow=_list("allow", allow), deny=_list("deny", deny))


def is_metadata_address(address: str) -> bool:
    """Whether this numeric address is a metadata service, in any form that reaches it.

    True also for what is not an address at all: what cannot be judged is not called.
    """
    parsed = _parsed(address)
    return parsed is None or any(_is_metadata(form) for form in (parsed, *_embedded_v4(parsed)))


def _list(name: str, rules: Sequence[str]) -> _List:
    networks: list[Network] = []
    hosts: list[str] = []
    for rule in rules:
        text = rule.strip().lower()
        try:
            networks.append(ip_network(text.removeprefix("[").removesuffix("]")))
            continue
        except ValueError as error:
            # With a slash, a colon, or a number at its end, it was meant as an address.
            if "/" in text or ":" in text or re.search(r"(?:^|\.)(?:0x[0-9a-f]*|[0-9]+)\.?$", text):
                raise InvalidConfig(f"[egress] {name}: {rule!r}: {error}") from None
        host = _host_rule(text)
        if host is None:
            raise InvalidConfig(f"[egress] {name}: {rule!r} is not a network, an address or a host name")
        hosts.append(host)
    return _List(tuple(networks), tuple(hosts))


def _host_rule(text: str) -> str | None:
    text = text.removesuffix(".")
    beneath = text.startswith((".", "*."))
    name = text.partition(".")[2] if beneath else text
    normal = normal_host(name) if name else ""
    if not normal or not _HOST_RULE.fullmatch(normal):
        return None
    return f".{normal}" if beneath else normal


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(address.partition("%")[0])
    except ValueError:
        return None


def _is_metadata(address: IPv4Address | IPv6Address) -> bool:
    return any(address in network for network in (_METADATA_V4 if address.version == 4 else _METADATA_V6))


def _reaches(address: IPv4Address | IPv6Address, networks: Sequence[Network]) -> bool:
    """Whether it, or the IPv4 address that is called in its place, is in one of them."""
    forms = [address]
    if isinstance(address, IPv6Address) and any(address in network for network in _V4_IN_LOW_BITS):
        forms.append(_low_v4(address))
    return any(form in network for form in forms for network in networks)


def _low_v4(address: IPv6Address) -> IPv4Address:
    return IPv4Address(int(address) & 0xFFFF_FFFF)


def _embedded_v4(address: IPv4Address | IPv6Address) -> tuple[IPv4Address, ...]:
    """Every IPv4 address that a packet to this one may end at."""
    if isinstance(address, IPv4Address):
        return ()
    if any(address in network for network in _V4_IN_LOW_BITS):
        return (_low_v4(address),)
    if address in _SIX_TO_FOUR:
        return (IPv4Address((int(address) >> 80) & 0xFFFF_FFFF),)
    if address in _TEREDO:
        # Its server, and its client with the bits inverted.
        return (IPv4Address((int(address) >> 64) & 0xFFFF_FFFF), IPv4Address(~int(address) & 0xFFFF_FFFF))
    return ()
