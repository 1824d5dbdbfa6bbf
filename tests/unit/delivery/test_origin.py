"""One host is one origin, however its URL is written; two are two."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleet.delivery.origin import host_of, origin_of


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://a.example/hook", "https://a.example"),
        ("HTTPS://A.Example:443/Hook", "https://a.example"),
        ("https://a.example.", "https://a.example"),
        ("https://a.example:0443/", "https://a.example"),
        ("https://a.example:/", "https://a.example"),
        ("https://a.example:80/", "https://a.example:80"),
        ("http://a.example:80/x", "http://a.example"),
        ("http://a.example:8080?x=1", "http://a.example:8080"),
        ("http://a.example#x", "http://a.example"),
        ("https://user:pass@word@a.example/", "https://a.example"),
        ("https://a.example/http://b.example", "https://a.example"),
        ("https://a.example?http://b.example@c.example", "https://a.example"),
        ("http://[::1]/", "http://[::1]"),
        ("http://[0:0:0:0:0:0:0:1]:80/", "http://[::1]"),
        ("http://u@[2001:DB8::A]:8080/", "http://[2001:db8::a]:8080"),
        ("http://127.0.0.1:9/", "http://127.0.0.1:9"),
        ("http://127.1/", "http://127.0.0.1"),
        ("http://0x7f.1/", "http://127.0.0.1"),
        ("http://2130706433/", "http://127.0.0.1"),
        ("https://bücher.example/", "https://xn--bcher-kva.example"),
        ("https://%61.example/", "https://a.example"),
    ],
)
def test_an_origin_has_one_spelling(url: str, origin: str) -> None:
    assert origin_of(url) == origin


@pytest.mark.parametrize(
    "url",
    [
        "",
        "a.example",
        "//a.example/",
        "ftp://a.example/",
        "file:///etc/passwd",
        "http://",
        "http:///x",
        "http://:80/",
        "http://a.example:port/",
        "http://a.example:٨٠/",
        "http://a.example:0/",
        "http://a.example:65536/",
        "http://[::1/",
        "http://[::1]x/",
        "http://[not:an:address]/",
        "http://a b/",
        "http://a\x1fb/",
        "http://a%00b/",
        "http://a%2fb/",
        f"http://{'a' * 254}/",
    ],
)
def test_what_leads_nowhere_has_no_origin(url: str) -> None:
    assert origin_of(url) == ""


def test_the_host_of_an_address_has_no_brackets() -> None:
    assert host_of("https://u:p@[2001:DB8::1]:8443/x") == "2001:db8::1"
    assert host_of("https://A.example:8443/x") == "a.example"
    assert host_of("nonsense") == ""


@given(
    path=st.text(st.characters(codec="utf-8"), max_size=30),
    user=st.text("abcXYZ123:%._-", max_size=10),
    port=st.sampled_from(["", ":443", ":"]),
)
def test_neither_path_nor_query_nor_user_nor_the_default_port_make_another_origin(
    path: str, user: str, port: str
) -> None:
    for end in ("/", "?", "#"):
        assert origin_of(f"https://{user}@Host.example{port}{end}{path}") == "https://host.example"


@given(st.text(max_size=60))
def test_no_text_makes_it_fail_and_no_origin_holds_what_our_records_are_separated_by(text: str) -> None:
    for url in (text, f"http://{text}", f"https://{text}/"):
        origin = origin_of(url)
        assert origin.isprintable() and len(origin) < 300
        assert not origin or origin_of(origin) == origin
