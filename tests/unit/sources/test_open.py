from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fleet.sources
from fleet.config.router import parse_router_config
from fleet.errors import InvalidConfig
from fleet.kinds import KIND_OF, SCHEMES, SHARED, kind_of
from fleet.sources.adapter import Adapter
from fleet.sources.base import Publisher, Source, Surroundings
from fleet.sources.open import adapter_for, open_publisher, open_source

AROUND = Surroundings(redis_url="redis://127.0.0.1:1/0")
URIS = {
    "fleet": "fleet://q",
    "http": "http://127.0.0.1:1/123456789012/q",
    "https": "https://sqs.eu-west-1.amazonaws.com/123456789012/q",
    "nats": "nats://h/s/c",
    "sqlite": "sqlite:///q.db?queue=q",
    "sqs": "sqs://eu-west-1/q",
    "stomp": "stomp://h/q",
}
"""A good URI of each scheme."""
BESIDE = ("fleet://subscription/s", "FLEET://Topic/t")
"""Good URIs of kinds that share a scheme."""
HEAVY = ("boto3", "botocore", "nats", "stomp", "sqlalchemy")


def adapter(uri: str) -> Adapter[Any]:
    found = adapter_for(uri)
    assert found is not None
    return found


def opened(uri: str) -> tuple[Source, Publisher]:
    return open_source("q", uri, 1000, around=AROUND), open_publisher(uri, around=AROUND)


def test_a_source_is_known_by_its_queue_name() -> None:
    source = open_source("orders", "sqlite:///q.db?queue=a", 1234)
    assert (source.visibility_ms, source.holds_groups) == (1234, True)
    with pytest.raises(InvalidConfig, match="of queue orders must"):
        open_source("orders", "sqlite:///q.db?queue=a", 0)


def test_the_scheme_is_read_in_any_case() -> None:
    assert open_source("orders", "SQLite:///q.db?queue=a", 1).holds_groups


@pytest.mark.parametrize("uri", ["kafka://user:secret@host/topic", "q.db", ""])
def test_an_unknown_scheme_names_the_known_ones_and_tells_no_password(uri: str) -> None:
    for attempt in (lambda: open_source("q", uri, 1000), lambda: open_publisher(uri)):
        with pytest.raises(InvalidConfig, match="known schemes: .*sqlite") as caught:
            attempt()
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("visibility_ms", [0, -1])
def test_a_visibility_timeout_of_nothing_is_refused(visibility_ms: int) -> None:
    with pytest.raises(InvalidConfig, match="visibility"):
        open_source("q", "sqlite:///q.db?queue=a", visibility_ms)


# Kinds ---------------------------------------------------------------------------------------------


def test_every_folder_with_an_adapter_is_a_kind_and_every_kind_has_one() -> None:
    (here,) = fleet.sources.__path__
    kinds = {*SCHEMES, *SHARED.values()}
    assert {file.parent.name for file in Path(here).glob("*/adapter.py")} == kinds
    assert {file.parent.name for file in Path(here).glob("*/__init__.py")} == kinds
    assert len(KIND_OF) == sum(map(len, SCHEMES.values())), "no scheme is of two kinds"
    assert set(URIS) == set(KIND_OF)


@pytest.mark.parametrize("scheme", URIS)
def test_every_adapter_opens_its_own_sources_and_publishers(scheme: str) -> None:
    assert isinstance(adapter(URIS[scheme]), Adapter)
    folder = f"fleet.sources.{KIND_OF[scheme]}."
    assert [type(one).__module__.startswith(folder) for one in opened(URIS[scheme])] == [True, True]


def test_a_kind_may_share_the_scheme_of_another() -> None:
    assert [kind_of(uri) for uri in (*BESIDE, "fleet://subscription", "fleet://s/subscription/")] == [
        "topics", "topics", "own", "own",
    ]  # fmt: skip
    source = open_source("q", BESIDE[0], 1000, around=AROUND)
    assert (source.is_looked_into, source.holds_groups) == (False, True)
    assert adapter(BESIDE[0]).look is None
    for uri in BESIDE:
        assert type(open_publisher(uri, around=AROUND)).__module__.startswith("fleet.sources.topics.")
        assert parse_router_config(b'{"queues": [{"queueUri": "%s"}]}' % uri.encode()).remarks == ()


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("fleet://subscription/", "SUBSCRIPTION"), ("fleet://subscription/1", "1"), ("fleet://subscription/a/b", "a/b"),
        ("fleet://topic/goog", "goog"),
    ],
)  # fmt: skip
def test_a_name_that_no_subscription_has_is_refused(uri: str, says: str) -> None:
    with pytest.raises(InvalidConfig, match="(?i)fleet://.*NAME: .*" + says):
        adapter(uri).parse(uri)


def test_a_topic_is_not_read() -> None:
    with pytest.raises(InvalidConfig, match="read a subscription to it"):
        open_source("q", "fleet://topic/t", 1000, around=AROUND)


@pytest.mark.parametrize("scheme", URIS)
def test_no_adapter_takes_a_uri_that_names_no_queue(scheme: str) -> None:
    with pytest.raises(InvalidConfig):
        adapter(URIS[scheme]).parse(f"{scheme}://")


def test_the_configuration_knows_the_schemes_of_the_adapters_and_no_others() -> None:
    for scheme, uri in URIS.items():
        assert parse_router_config(b'{"queues": [{"queueUri": "%s"}]}' % uri.encode()).remarks == (), scheme
    (remark,) = parse_router_config(b'{"queues": [{"queueUri": "kafka://h/q"}]}').remarks
    assert "unknown kind of queue" in remark
    assert adapter_for("kafka://h/q") is None


@pytest.mark.parametrize("scheme", URIS)
def test_explain_and_a_source_agree_on_whether_it_is_looked_into(scheme: str) -> None:
    # Where it is not, its coordinator remembers what `fleet explain` cannot ask the source.
    source, _ = opened(URIS[scheme])
    assert source.is_looked_into == (adapter(URIS[scheme]).look is not None)


@pytest.mark.parametrize(
    "program",
    [
        "from click.testing import CliRunner; from fleet.cli.main import fleet;"
        " assert CliRunner().invoke(fleet, ['--help']).exit_code == 0",
        "from fleet.kinds import KIND_OF; from fleet.sources.open import adapter_for;"
        " assert all(adapter_for(f'{scheme}://q') for scheme in [*KIND_OF, 'fleet://topic/t'])",
    ],
    ids=["the help", "facts of every kind"],
)
def test_no_heavy_library_is_imported_for(program: str) -> None:
    code = f"import sys; {program}; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"
