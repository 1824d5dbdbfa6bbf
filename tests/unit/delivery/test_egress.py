"""Which addresses are never called."""

from __future__ import annotations

import pytest

from fleet.delivery.egress import is_metadata_address

METADATA_V4 = ["169.254.0.0", "169.254.169.254", "169.254.170.2", "169.254.255.255", "100.100.100.200", "192.0.0.192"]
NEIGHBOURS_V4 = ["169.253.255.255", "169.255.0.0", "100.100.100.199", "192.0.0.193", "127.0.0.1", "10.0.0.1", "8.8.8.8"]


def forms(v4: str) -> list[str]:
    a, b, c, d = (int(part) for part in v4.split("."))
    high, low = f"{a:02x}{b:02x}", f"{c:02x}{d:02x}"
    return [
        v4,
        f"::ffff:{v4}",
        f"::ffff:{high}:{low}",
        f"::ffff:0:{v4}",
        f"::{high}:{low}",
        f"64:ff9b::{v4}",
        f"64:ff9b::{high}:{low}",
        f"64:ff9b:1::{v4}",
        f"2002:{high}:{low}::1",
        f"2002:{high}:{low}:5:6:7:8:9",
    ]


@pytest.mark.parametrize("address", [form for v4 in METADATA_V4 for form in forms(v4)])
def test_a_metadata_address_is_never_called_in_any_of_its_forms(address: str) -> None:
    assert is_metadata_address(address)


@pytest.mark.parametrize("address", [form for v4 in NEIGHBOURS_V4 for form in forms(v4)])
def test_its_neighbours_are_called(address: str) -> None:
    assert not is_metadata_address(address)


@pytest.mark.parametrize("address", ["fe80::1", "fe80::1%eth0", "febf:ffff::1", "fd00:ec2::254", "FD00:0EC2::0254"])
def test_ipv6_metadata_and_link_local_addresses_are_never_called(address: str) -> None:
    assert is_metadata_address(address)


@pytest.mark.parametrize("address", ["::1", "fec0::1", "fd00:ec2::253", "fd00:ec2::254:0", "2001:db8::1"])
def test_other_ipv6_addresses_are_called(address: str) -> None:
    assert not is_metadata_address(address)


@pytest.mark.parametrize("address", ["", "localhost", "169.254.169", "/run/docker.sock"])
def test_what_is_no_address_is_never_called(address: str) -> None:
    assert is_metadata_address(address)
