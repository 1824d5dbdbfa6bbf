from __future__ import annotations

import json
from pathlib import Path

import pytest

from fleet.config.router import parse_router_config
from fleet.config.settings import Settings, load
from fleet.errors import InvalidConfig


def write(directory: Path, text: str, name: str = "fleet.toml") -> Path:
    file = directory / name
    file.write_text(text, encoding="utf-8")
    return file


def refusal(directory: Path, environment: dict[str, str] | None = None) -> str:
    with pytest.raises(InvalidConfig) as caught:
        load(environment=environment or {}, directory=directory)
    return str(caught.value)


def test_without_a_file_the_defaults_hold(tmp_path: Path) -> None:
    settings = load(environment={}, directory=tmp_path)
    assert settings.data_dir == tmp_path / ".fleet"
    assert settings.lease.ttl_ms == 10_000
    assert (settings.http.timeout_ms, settings.http.connect_timeout_ms) == (900_000, 30_000)
    assert settings.http.version == "HTTP_2"
    assert (settings.worker.max_in_flight, settings.worker.stop_within_s) == (512, 30.0)
    assert settings.config.sync_interval_s == 300
    assert settings.redis.url == ""
    assert (settings.file, settings.remarks) == (None, ())


def test_the_file_is_read_and_the_environment_wins_over_it(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        'data_dir = "state"\n[redis]\nurl = "redis://one"\n[lease]\nttl_ms = 2000\n'
        '[egress]\nallow = ["10.0.0.0/8"]\n[config]\nsync_interval_s = "30s"\n[http]\nversion = "1.1"\n',
    )
    settings = load(
        environment={"FLEET_REDIS_URL": "redis://two", "FLEET_LEASE_TTL_MS": "", "FLEET_EGRESS_DENY": "a, b"},
        directory=tmp_path,
    )
    assert settings.redis.url == "redis://two"
    assert settings.lease.ttl_ms == 2000
    assert settings.egress.allow == ("10.0.0.0/8",)
    assert settings.egress.deny == ("a", "b")
    assert settings.config.sync_interval_s == 30
    assert settings.http.version == "HTTP_1_1"
    assert (settings.file, settings.data_dir) == (file, tmp_path / "state")


def test_the_names_of_the_seeds_are_read_and_ours_win(tmp_path: Path) -> None:
    environment = {
        "MESSAGE_ROUTER_CONFIG_URL": "https://a/config, https://b/config",
        "MESSAGE_ROUTER_ENABLED": "false",
        "MESSAGE_ROUTER_SYNC_INTERVAL": "5m",
        "MESSAGE_ROUTER_MAX_POOLS": "7",
        "MEDIATOR_HTTP_TIMEOUT_MS": "1234",
        "MEDIATOR_HTTP_VERSION": "HTTP_1_1",
        "SQS_ENDPOINT_OVERRIDE": "http://127.0.0.1:9324",
        "DISPATCH_SCHEDULER_ENABLED": "false",
        "DISPATCH_SCHEDULER_POLL_INTERVAL": "5s",
        "DISPATCH_SCHEDULER_BATCH_SIZE": "20",
        "DISPATCH_SCHEDULER_QUEUE_URL": "fleet://jobs",
        "DISPATCH_SCHEDULER_PROCESSING_ENDPOINT": "http://h/process",
        "DISPATCH_SCHEDULER_STALE_QUEUED_THRESHOLD_MINUTES": "7",
        "DISPATCH_SCHEDULER_STALE_QUEUED_POLL_INTERVAL": "30s",
    }
    settings = load(environment=environment, directory=tmp_path)
    feed = settings.feed
    assert (feed.enabled, feed.poll_interval_s, feed.batch_size, feed.queue_url) == (False, 5, 20, "fleet://jobs")
    assert feed.processing_endpoint == "http://h/process"
    assert (feed.stale_queued_threshold_minutes, feed.stale_queued_poll_interval_s) == (7, 30)
    assert settings.config.source == "https://a/config,https://b/config"
    assert settings.config.enabled is False
    assert settings.config.sync_interval_s == 300
    assert settings.config.max_pools == 7
    assert (settings.http.timeout_ms, settings.http.version) == (1234, "HTTP_1_1")
    assert settings.sqs.endpoint_override == "http://127.0.0.1:9324"
    both = load(environment={**environment, "FLEET_HTTP_TIMEOUT_MS": "9"}, directory=tmp_path)
    assert both.http.timeout_ms == 9


@pytest.mark.parametrize(
    ("text", "seconds"), [("5m", 300), ("30s", 30), ("500ms", 0.5), ("1h", 3600), ("2", 2), ("1.5", 1.5)]
)
def test_durations_are_read_as_people_write_them(tmp_path: Path, text: str, seconds: float) -> None:
    settings = load(environment={"MESSAGE_ROUTER_SYNC_INTERVAL": text}, directory=tmp_path)
    assert settings.config.sync_interval_s == seconds


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("FLEET_LEASE_TTL_MS", "fast", "FLEET_LEASE_TTL_MS: must be an integer of at least 100"),
        ("FLEET_LEASE_TTL_MS", "1.5", "must be an integer"),
        ("FLEET_LEASE_TTL_MS", "1", "of at least 100, is"),
        ("FLEET_SERVER_PORT", "65536", "FLEET_SERVER_PORT: must be an integer from 0 to 65535, is"),
        ("FLEET_SQS_PORT", "70000", "from 0 to 65535"),
        ("FLEET_PUBSUB_PORT", "-1", "from 0 to 65535"),
        ("MESSAGE_ROUTER_ENABLED", "maybe", "MESSAGE_ROUTER_ENABLED: must be true or false"),
        ("MESSAGE_ROUTER_SYNC_INTERVAL", "5 parsecs", "must be a duration"),
        ("MEDIATOR_HTTP_VERSION", "HTTP_3", "must be one of HTTP_2, HTTP_1_1"),
    ],
)
def test_a_wrong_variable_is_named(tmp_path: Path, variable: str, value: str, words: str) -> None:
    assert words in refusal(tmp_path, {variable: value})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[lease]\nttl_ms = '5'", "[lease] ttl_ms: must be an integer of at least 100, is"),
        ("[sqs]\nport = 70_000", "[sqs] port: must be an integer from 0 to 65535, is"),
        ("[lease]\nttl_ms = true", "[lease] ttl_ms: must be an integer"),
        ("[lease]\nttl_sm = 5", "[lease] ttl_sm: unknown, did you mean ttl_ms?"),
        ("[leese]\nttl_ms = 5", "leese: unknown, did you mean lease?"),
        ("lease = 5", "[lease] must be a table"),
        ("[config]\nenabled = 1", "[config] enabled: must be true or false"),
        ("[config]\nsync_interval_s = nan", "[config] sync_interval_s: must be a duration"),
        ("[egress]\nallow = 'all'", "[egress] allow: must be a list of strings"),
        ("[redis]\nurl = 5", "[redis] url: must be a string"),
        ("[config]\ninline = 'x'", "[config] inline: unknown"),
        ("pools = 3", "[pools] must hold tables"),
        ("[lease", "not TOML"),
    ],
)
def test_a_wrong_file_is_refused_by_its_name(tmp_path: Path, text: str, words: str) -> None:
    file = write(tmp_path, text)
    message = refusal(tmp_path)
    assert message.startswith(str(file))
    assert words in message


def test_every_problem_of_a_file_is_named(tmp_path: Path) -> None:
    write(tmp_path, "[lease]\nttl_ms = 'x'\n[http]\nspeed = 3\n")
    message = refusal(tmp_path)
    assert "ttl_ms" in message
    assert "speed" in message


def test_a_chosen_toml_file_must_exist_and_any_other_choice_is_the_router_configuration(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="No such file"):
        load(config="absent.toml", environment={}, directory=tmp_path)
    write(tmp_path, "[config]\nsource = 'router.json'\n", "other.toml")
    assert load(config="other.toml", environment={}, directory=tmp_path).config.source == str(tmp_path / "router.json")
    write(tmp_path, "[config]\nsource = 'router.json'\n")
    chosen = load(config="mine.json", environment={"FLEET_CONFIG": "x.json"}, directory=tmp_path)
    assert chosen.config.source == str(tmp_path / "mine.json")
    from_variable = load(environment={"FLEET_CONFIG": "https://h/c"}, directory=tmp_path)
    assert from_variable.config.source == "https://h/c"


def test_a_source_named_in_a_file_is_found_beside_that_file(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    write(tmp_path / "etc", "[config]\nsource = 'router.json'\n")
    settings = load(config="etc/fleet.toml", environment={}, directory=tmp_path)
    assert settings.config.source == str(tmp_path / "etc" / "router.json")


def test_pools_and_queues_of_the_file_make_a_router_configuration(tmp_path: Path) -> None:
    write(
        tmp_path,
        '[queues.q1]\nuri = "fleet://q1"\nvisibility_timeout_s = 60\n'
        '[pools.A]\nconcurrency = 3\nrate_limit_per_minute = 60\non_failure = "hold"\n',
    )
    router = parse_router_config(load(environment={}, directory=tmp_path).config.inline)
    pool = router.pool("A")
    queue = router.queue("q1")
    assert pool is not None and queue is not None
    assert (pool.concurrency, pool.rate_limit_per_minute, pool.on_failure) == (3, 60, "hold")
    assert (queue.uri, queue.visibility_timeout_s) == ("fleet://q1", 60)
    assert router.remarks == ()


def test_a_variable_without_a_setting_is_remarked(tmp_path: Path) -> None:
    settings = load(environment={"FLEET_REDIS_ULR": "x", "FLEET_CONFIG": "a.json"}, directory=tmp_path)
    assert settings.remarks == ("FLEET_REDIS_ULR: no setting has this name, did you mean FLEET_REDIS_URL?",)


def test_no_secret_appears_in_a_repr_an_error_or_what_is_shown(tmp_path: Path) -> None:
    environment = {
        "FLEET_REDIS_URL": "redis://:s3c/ret@h/0",
        "FLEET_SERVER_TOKEN": "s3cret",
        "FLEET_SERVER_VIEWER_TOKEN": "s3cret",
        "FLEET_DATABASE_URL": "postgresql://me:s3cret@h/d",
        "MESSAGE_ROUTER_CONFIG_URL": "https://me:s3cret@h/c?token=s3cret,router.json",
    }
    settings = load(environment=environment, directory=tmp_path)
    assert settings.server.token == "s3cret"
    assert "s3c" not in repr(settings)
    assert "s3c" not in str(settings.redacted())
    assert settings.redacted()["redis"] == {"url": "redis://h/0"}
    assert "s3cret" not in refusal(write(tmp_path, "[server]\ntoken = ['s3cret']").parent)


def test_the_command_line_wins(tmp_path: Path) -> None:
    settings = load(redis_url="redis://cli", environment={"FLEET_REDIS_URL": "redis://env"}, directory=tmp_path)
    assert settings.redis.url == "redis://cli"


def test_settings_cannot_be_changed_after_they_are_read() -> None:
    with pytest.raises(AttributeError):
        Settings().failpoint = "x"  # type: ignore[misc]


SCHEDULER = {
    "enabled": (False, "enabled", False),
    "poll-interval": ("5s", "poll_interval_s", 5.0),
    "batch-size": (20, "batch_size", 20),
    "max-concurrent-groups": (10, "shards", 10),
    "queue-type": ("SQS", "queue_type", "SQS"),
    "queue-url": ("https://sqs.example/1/q.fifo", "queue_url", "https://sqs.example/1/q.fifo"),
    "embedded-db-path": ("./q.db", "embedded_db_path", "./q.db"),
    "processing-endpoint": ("http://a/process", "processing_endpoint", "http://a/process"),
    "default-dispatch-pool-code": ("DISPATCH-POOL", "default_dispatch_pool_code", "DISPATCH-POOL"),
    "stale-queued-threshold-minutes": (7, "stale_queued_threshold_minutes", 7),
    "stale-queued-poll-interval": ("60s", "stale_queued_poll_interval_s", 60.0),
}
"""All properties of seed 004: as it writes them, and what that is here."""


def test_the_properties_of_the_dispatch_scheduler_are_read_by_their_names(tmp_path: Path) -> None:
    expected = {name: value for _, name, value in SCHEDULER.values()}
    variables = {
        f"dispatch-scheduler-{name}".replace("-", "_").upper(): str(given).lower() if given is False else str(given)
        for name, (given, _, _) in SCHEDULER.items()
    }
    by_environment = load(environment=variables, directory=tmp_path).feed
    lines = (f"{name} = {json.dumps(given)}\n" for name, (given, _, _) in SCHEDULER.items())
    write(tmp_path, "[dispatch-scheduler]\n" + "".join(lines))
    by_file = load(environment={}, directory=tmp_path).feed
    assert by_environment == by_file
    assert {name: getattr(by_file, name) for name in expected} == expected


@pytest.mark.parametrize("feed_first", [True, False])
def test_feed_wins_over_the_name_of_the_seed_wherever_it_stands(tmp_path: Path, feed_first: bool) -> None:
    tables = ["[feed]\nbatch_size = 5\n", "[dispatch-scheduler]\nbatch-size = 20\n"]
    write(tmp_path, "".join(tables if feed_first else reversed(tables)))
    assert load(environment={}, directory=tmp_path).feed.batch_size == 5


def test_an_embedded_queue_needs_no_uri(tmp_path: Path) -> None:
    kind = {"DISPATCH_SCHEDULER_QUEUE_TYPE": "EMBEDDED"}
    assert load(environment=kind, directory=tmp_path).feed.queue_url == (
        f"sqlite:///{tmp_path}/.fleet/dispatch-queue.db?queue=dispatch"
    )
    named = load(environment={**kind, "DISPATCH_SCHEDULER_EMBEDDED_DB_PATH": "./my.db"}, directory=tmp_path)
    assert named.feed.queue_url == f"sqlite:///{tmp_path}/my.db?queue=dispatch"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("queue-type = 'SQS'", "[feed] queue_type is SQS: queue_url must be sqs://… or http://… or https://…"),
        ("queue-type = 'KAFKA'", "[dispatch-scheduler] queue-type: must be one of"),
        ("batch-sice = 3", "[dispatch-scheduler] batch-sice: unknown"),
        ("batch-size = 0", "[dispatch-scheduler] batch-size: must be an integer of at least 1"),
    ],
)
def test_a_wrong_property_of_the_dispatch_scheduler_is_named(tmp_path: Path, text: str, words: str) -> None:
    write(tmp_path, f"[dispatch-scheduler]\n{text}\n")
    assert words in refusal(tmp_path)
