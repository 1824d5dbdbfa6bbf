"""What is said of a URL that cannot be used, and that nothing of a password ever is."""

from __future__ import annotations

import pytest

from fleet.errors import StateUnavailable
from fleet.state.connect import check_url
from fleet.state.url import safe_url

ENCODE = "percent-encode @ and / in a password"


def said_of(url: str) -> str:
    with pytest.raises(StateUnavailable, match="not a Redis URL") as refused:
        check_url(url)
    return str(refused.value)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("sentinel://h:1/m?foo=1", "sentinel://h:1/m (unknown option foo)"),
        ("redis://h:1/0?foo=1", "redis://h:1/0 (unknown option foo)"),
        ("redis://h:1/0?password=p@s&foo=1", "redis://h:1/0 (unknown option foo)"),
        ("redis://h:1/0?socket_timeout=x", "the option socket_timeout cannot have that value"),
        ("sentinel://h:1", "it names no master"),
        ("sentinel://h:1/m/x", "its database must be a number"),
        ("redis://h:1/x", "its database must be a number"),
        ("redis://h:x/0", "its port must be a number"),
        ("http://h", "it begins with one of redis://, "),
        ("foo", "not a Redis URL: foo (it begins"),
    ],
)
def test_what_is_wrong_is_named(url: str, words: str) -> None:
    assert words in said_of(url)


@pytest.mark.parametrize(
    "secret", ["sec/ret", "sec/r@ret", "s@sec/ret", "sec?ret", "sec#ret", "sec[ret]", "?sec=ret@x"]
)
@pytest.mark.parametrize("kind", ["redis://:{}@h:1/0", "redis://sec:{}@h:1/0", "sentinel://:{}@h:1,i:1/m/0"])
def test_a_password_that_is_not_encoded_is_told_and_never_shown(kind: str, secret: str) -> None:
    said = said_of(kind.format(secret))
    assert ENCODE in said
    assert "sec" not in said
    assert "ret" not in said
    assert "://h:1" in said


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("redis://me:s@cret@h:1/0", "redis://h:1/0"),
        ("redis://h:1/0?password=s@cret", "redis://h:1/0"),
        ("unix://:s@cret@/tmp/redis.sock", "unix:///tmp/redis.sock"),
        ("unix:///tmp/redis.sock?db=0&password=s@cret", "unix:///tmp/redis.sock"),
        ("sentinel://:s@cret@h:1,i:2/m/0?sentinel_password=s@cret", "sentinel://h:1,i:2/m/0"),
        ("redis://:cr[et@h", "redis://h"),
        ("foo", "foo"),
    ],
)
def test_a_url_is_shown_from_behind_its_last_at(url: str, shown: str) -> None:
    assert safe_url(url) == shown
