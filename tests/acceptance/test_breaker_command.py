"""`fleet breakers` and `fleet breaker reset`, from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleet.state.breakers import SharedBreakers
from fleet.state.connect import connected
from tests.acceptance.fleet_command import Fleet
from tests.servers.local import RedisServer


@pytest.fixture
def url(redis_server: RedisServer) -> str:
    return redis_server.url


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


async def opened(url: str, *origins: str) -> None:
    async with connected(url) as client:
        for origin in origins:
            await SharedBreakers(client).open(origin, "w", for_ms=60_000)


async def test_open_breakers_are_listed_for_people_and_programs(fleet: Fleet, url: str) -> None:
    assert fleet.run("breakers", "--redis", url).out == "Every circuit breaker is closed.\n"
    assert fleet.run("breakers", "--json", "--redis", url).document == []
    await opened(url, "https://a.example", "http://b.example:8080")
    listed = fleet.run("breakers", "--json", "--redis", url).document
    assert [(row["origin"], row["state"], row["openings"]) for row in listed] == [
        ("http://b.example:8080", "OPEN", 1),
        ("https://a.example", "OPEN", 1),
    ]
    table = fleet.run("breakers", "--redis", url).out
    assert "https://a.example" in table and "open" in table


async def test_status_says_at_once_which_origins_are_left_alone(fleet: Fleet, url: str) -> None:
    await opened(url, "https://a.example")
    text = fleet.run("status", "--redis", url).out
    assert "\n! https://a.example fails: its circuit breaker is open (not closed for " in text
    assert "No problems." not in text
    told = fleet.run("status", "--json", "--redis", url).document
    assert [(row["origin"], row["state"], row["pools"]) for row in told["circuitBreakers"]] == [
        ("https://a.example", "OPEN", {})
    ]
    assert any(problem.startswith("https://a.example fails") for problem in told["problems"])


async def test_a_reset_closes_one_or_all(fleet: Fleet, url: str) -> None:
    await opened(url, "https://a.example", "http://b.example:8080", "http://c.example")
    said = fleet.run("breaker", "reset", "HTTPS://A.example:443/some/path", "--redis", url).out
    assert said == "https://a.example is closed.\n"
    assert "was already closed" in fleet.run("breaker", "reset", "https://a.example", "--redis", url).out
    assert len(fleet.run("breakers", "--json", "--redis", url).document) == 2
    fleet.run("breaker", "reset", "--all", "--redis", url)
    assert fleet.run("breakers", "--json", "--redis", url).document == []


@pytest.mark.parametrize("arguments", [(), ("https://a.example", "--all"), ("a.example",), ("ftp://a.example",)])
def test_a_wrong_call_is_one_line_and_exit_code_2(fleet: Fleet, url: str, arguments: tuple[str, ...]) -> None:
    answer = fleet.run("breaker", "reset", *arguments, "--redis", url)
    assert (answer.code, answer.out) == (2, "")
    assert answer.err.count("\n") == 1
