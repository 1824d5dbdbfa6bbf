"""The key of the tokens: the one that is set, or one that this machine keeps."""

from __future__ import annotations

import hashlib
import hmac
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fleet.config.settings import DatabaseSettings, Settings
from fleet.errors import InvalidConfig
from fleet.jobs.app_key import FILE, app_key, is_token_of, token_maker, token_of


def test_a_token_is_the_hex_hmac_sha256_of_the_jobs_id() -> None:
    assert token_of(b"key", "job") == hmac.new(b"key", b"job", hashlib.sha256).hexdigest()
    assert is_token_of(b"key", "job", token_of(b"key", "job"))
    assert not is_token_of(b"key", "job", "ünïcode")


@pytest.mark.parametrize("length", [1, 63, 64, 65, 200])
def test_many_tokens_of_one_key_are_what_each_is_alone(length: int) -> None:
    key = bytes(range(length))
    make = token_maker(key)
    assert [make(job) for job in ("job", "", "ünïcode", "job")] == [
        token_of(key, job) for job in ("job", "", "ünïcode", "job")
    ]


def test_a_key_that_is_set_wins_and_makes_no_file(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "data", database=DatabaseSettings(app_key="a-secret"))
    assert app_key(settings) == b"a-secret"
    assert not (tmp_path / "data").exists()
    assert "a-secret" not in repr(settings) and settings.redacted()["database"]["app_key"] == "***"


def test_without_one_a_key_is_made_once_for_us_alone(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    with ThreadPoolExecutor(8) as threads:
        keys = set(threads.map(app_key, [settings] * 8))
    assert len(keys) == 1 and len(keys.pop()) == 64
    assert [file.name for file in (tmp_path / "data").iterdir()] == [FILE]
    assert stat.S_IMODE((tmp_path / "data" / FILE).stat().st_mode) == 0o600
    assert app_key(settings) != app_key(Settings(data_dir=tmp_path / "other"))


def test_an_empty_file_is_no_key(tmp_path: Path) -> None:
    (tmp_path / FILE).touch()
    with pytest.raises(InvalidConfig, match="is empty"):
        app_key(Settings(data_dir=tmp_path))
