"""Which addresses are never called: those where a cloud tells its secrets to whoever is on the machine.

Judged on the address that a connection is opened to, not on the URL: `0x7f.1`, a DNS name, or an IPv6
form of an IPv4 address all lead to the same host, and a name may change between two look-ups.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

_METADATA_V4 = (
    ip_network("169.254.0.0/16"),  # link-local: AWS, Azure, Google, ECS task credentials
    ip_network("100.100.100.200/32"),  # Alibaba
    ip_network("192.0.0.192/32"),  # Oracle
)
_METADATA_V6 = (
    ip_network("fe80::/10"),
    ip_network("fd00:ec2::254/128"),  # AWS
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


def is_metadata_address(address: str) -> bool:
    """Whether this numeric address is a metadata service, in any form that reaches it.

    What is not an address at all is called one too: what cannot be judged is not called.
    """
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return True
    if isinstance(parsed, IPv4Address):
        return _is_metadata_v4(parsed)
    if any(parsed in network for network in _METADATA_V6):
        return True
    embedded = _embedded_v4(parsed)
    return embedded is not None and _is_metadata_v4(embedded)


def _is_metadata_v4(address: IPv4Address) -> bool:
    return any(address in network for network in _METADATA_V4)


def _embedded_v4(address: IPv6Address) -> IPv4Address | None:
    if any(address in network for network in _V4_IN_LOW_BITS):
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    if address in _SIX_TO_FOUR:
        return IPv4Address((int(address) >> 80) & 0xFFFF_FFFF)
    return None
