"""Which hosts and addresses are called, and which never."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from fleet.config.settings import load
from fleet.delivery.client import HttpClient
from fleet.delivery.egress import egress_rules, is_metadata_address
from fleet.delivery.origin import host_of
from fleet.errors import InvalidConfig
from tests.unit.delivery.endpoints import on_uvloop, post

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
        f"2001:0:0808:0808:0:1:{0xFFFF ^ int(high, 16):x}:{0xFFFF ^ int(low, 16):x}",  # Teredo, its client
        f"2001:0:{high}:{low}:0:1:f7f7:f7f7",  # and its server
    ]


@pytest.mark.parametrize("address", [form for v4 in METADATA_V4 for form in forms(v4)])
def test_a_metadata_address_is_never_called_in_any_of_its_forms(address: str) -> None:
    assert is_metadata_address(address)


@pytest.mark.parametrize("address", [form for v4 in NEIGHBOURS_V4 for form in forms(v4)])
def test_its_neighbours_are_called(address: str) -> None:
    assert not is_metadata_address(address)


METADATA_V6 = ["fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:42::42"]


@pytest.mark.parametrize("address", ["fe80::1", "fe80::1%eth0", "febf:ffff::1", "FD00:0EC2::0254", *METADATA_V6])
def test_ipv6_metadata_and_link_local_addresses_are_never_called(address: str) -> None:
    assert is_metadata_address(address)


@pytest.mark.parametrize(
    "address",
    [
        "::1",
        "fec0::1",
        "fd00:ec2::253",
        "fd00:ec2::254:0",
        "fd00:ec2::24",
        "fd20:ce::255",
        "fd00:42::43",
        "2001:db8::1",
    ],
)
def test_other_ipv6_addresses_are_called(address: str) -> None:
    assert not is_metadata_address(address)


@pytest.mark.parametrize("address", ["", "localhost", "169.254.169", "/run/docker.sock"])
def test_what_is_no_address_is_never_called(address: str) -> None:
    assert is_metadata_address(address)


@pytest.mark.parametrize("address", [*(form for v4 in METADATA_V4 for form in forms(v4)), *METADATA_V6])
@pytest.mark.parametrize(
    "allow", [(), ("0.0.0.0/0", "::/0"), ("169.254.169.254", "100.100.100.200", "192.0.0.192", *METADATA_V6)]
)
def test_no_rule_allows_a_metadata_address(address: str, allow: tuple[str, ...]) -> None:
    rules = egress_rules(allow, ())
    assert rules.forbids_address(address)
    assert rules.forbids_host(address)


def test_without_rules_everything_else_is_called() -> None:
    rules = egress_rules((), ())
    for address in (*NEIGHBOURS_V4, "::1", "2001:db8::1"):
        assert not rules.forbids_address(address)
        assert not rules.forbids_host(address)
    assert not rules.forbids_host("anything.example")
    assert not rules.forbids_url("https://anything.example/x?y")


@pytest.mark.parametrize("address", forms("10.1.2.3"))
def test_a_denied_network_is_not_called_in_any_form_of_its_addresses(address: str) -> None:
    rules = egress_rules((), ("10.0.0.0/8",))
    assert rules.forbids_address(address)
    assert rules.forbids_host(address)


def test_deny_wins_over_allow() -> None:
    rules = egress_rules(("10.0.0.0/8", "example.com"), ("10.1.0.0/16", "secret.example.com"))
    assert not rules.forbids_host("10.2.0.1")
    assert rules.forbids_host("10.1.0.1")
    assert rules.forbids_address("10.1.0.1")
    assert not rules.forbids_host("api.example.com")
    assert rules.forbids_host("secret.example.com")
    assert rules.forbids_host("very.secret.example.com")


@pytest.mark.parametrize(
    ("address", "called"),
    [
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("64:ff9b::10.1.2.3", True),
        ("2001:db8::5", True),
        ("11.0.0.1", False),
        ("::ffff:11.0.0.1", False),
        ("2001:db9::5", False),
        ("2002:0a01:0203::1", False),  # a relay is not a host of ours
    ],
)
def test_where_networks_are_allowed_nothing_else_is_called_whatever_its_name(address: str, called: bool) -> None:
    rules = egress_rules(("10.0.0.0/8", "2001:db8::/32"), ())
    assert rules.forbids_address(address) is not called
    assert rules.forbids_host(address) is not called
    assert not rules.forbids_host("any.name.example")  # judged by where it leads


@pytest.mark.parametrize(
    ("rule", "host", "called"),
    [
        ("example.com", "example.com", True),
        ("example.com", "API.Example.COM.", True),
        ("example.com", "badexample.com", False),
        ("example.com", "example.com.evil.net", False),
        ("example.com", "com", False),
        ("*.example.com", "example.com", False),
        ("*.example.com", "a.b.example.com", True),
        (".example.com", "a.example.com", True),
        ("Example.COM.", "example.com", True),
        ("bücher.example", "xn--bcher-kva.example", True),
        ("xn--bcher-kva.example", "bücher.example", True),
        ("localhost", "localhost", True),
        ("example.com", "1.2.3.4", False),
        ("example.com", "0x1.2.3.4", False),
        ("example.com", "", False),
        ("example.com", "a b", False),
    ],
)
def test_where_hosts_are_allowed_a_name_must_be_one_of_them(rule: str, host: str, called: bool) -> None:
    rules = egress_rules((rule,), ())
    assert rules.forbids_host(host) is not called
    assert not rules.forbids_address("1.2.3.4")  # where an allowed name may lead


def test_a_name_that_is_not_allowed_is_not_called_because_a_network_is() -> None:
    rules = egress_rules(("example.com", "10.0.0.0/8"), ())
    assert rules.forbids_host("evil.net")
    assert not rules.forbids_host("10.0.0.1")
    assert not rules.forbids_host("012.1")  # octal, and so 10.0.0.1


@pytest.mark.parametrize(
    "url",
    [
        "http://evil.net@example.com.evil.net/",
        "http://example.com@evil.net/",
        "http://example.com:80@evil.net/",
        "http://evil.net/example.com",
        "http://evil.net#@example.com",
        "http://evil.net?@example.com",
        "evil.net/http://example.com",
        "http:/evil.net/",
        "http:///evil.net/",
        "//evil.net/",
        "ftp://example.com/",
        "http://example.com:port/",
    ],
)
def test_the_host_of_a_url_is_judged_and_a_url_without_one_is_not_called(url: str) -> None:
    assert egress_rules(("example.com",), ()).forbids_url(url)
    assert egress_rules((), ("evil.net", "example.com")).forbids_url(url)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("10.0.0.0/33", "'10.0.0.0/33'"),
        ("10.0.0.1/8", "host bits set"),
        ("300.1.1.1", "'300.1.1.1'"),
        ("10.1", "'10.1'"),
        ("0x7f.1", "'0x7f.1'"),
        ("::1::", "'::1::'"),
        ("http://example.com", "'http://example.com'"),
        ("example.com:80", "'example.com:80'"),
        ("example.com/x", "'example.com/x'"),
        ("*", "or a host name"),
        ("*example.com", "or a host name"),
        ("a*.example.com", "or a host name"),
        ("*.*.example.com", "or a host name"),
        ("a b", "or a host name"),
        ("-a.example", "or a host name"),
        ("a..b", "or a host name"),
        ("", "or a host name"),
        (".", "or a host name"),
    ],
)
@pytest.mark.parametrize("name", ["allow", "deny"])
def test_an_invalid_rule_is_named_at_the_start(name: str, rule: str, says: str) -> None:
    lists = {"allow": ("10.0.0.0/8",), "deny": ("example.com",), name: ("fine.example", rule)}
    with pytest.raises(InvalidConfig) as refused:
        egress_rules(**lists)
    assert f"[egress] {name}" in str(refused.value) and says in str(refused.value)
    assert "\n" not in str(refused.value)


def test_rules_come_from_the_settings() -> None:
    egress = load(environment={"FLEET_EGRESS_ALLOW": "10.0.0.0/8, example.com", "FLEET_EGRESS_DENY": "10.0.0.5"}).egress
    rules = egress_rules(egress.allow, egress.deny)
    assert [rules.forbids_host(host) for host in ("10.0.0.4", "10.0.0.5", "a.example.com")] == [False, True, False]


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9/",
        "http://127.1:9/",
        "http://0x7f.1:9/",
        "http://0177.0.0.1:9/",
        "http://2130706433:9/",
        "http://127.0.0.1.:9/",
        "http://127.0.0.2@127.0.0.1:9/",
        "http://127.0.0.2:8@127.0.0.1:9/",
        "http://127.0.0.2@127.0.0.3@127.0.0.1:9/",
        "http://127.0.0.1:9/@127.0.0.2",
        "http://127.0.0.1:9?@127.0.0.2",
        "http://127.0.0.1:9#@127.0.0.2",
        "http://127.0.0.1:9\\@127.0.0.2:9/",
        "http://127.0.0.2\\@127.0.0.1:9/",
        "http://%31%32%37.0.0.1:9/",
        "http://127。0。0。1:9/",
        "http://[::1]:9/",
        "http://[::ffff:127.0.0.1]:9/",
        "http://u:p@[::1]:9/",
        "127.0.0.1:9/",
        "http:/127.0.0.1:9/",
        "http:///127.0.0.1:9/",
        " http://127.0.0.1:9/",
        "http://127.0.0.1 .evil.net:9/",
        "http://127.0.0.1\t:9/",
    ],
)
@on_uvloop
async def test_libcurl_calls_no_host_but_the_one_that_was_judged(url: str) -> None:
    called: list[str] = []

    def note(address: str) -> bool:
        called.append(address)
        return True

    client = HttpClient(forbidden=note)
    try:
        await post(client, url, timeout_ms=2000)
    except Exception:
        assert called == []
    finally:
        client.close()
    judged = host_of(url)
    assert judged == "" or {ip_address(address) for address in called} <= {ip_address(judged)}
