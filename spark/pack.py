"""The files that a Spark cluster needs from us: our code as a zip, what it imports as an archive, the job to submit.

The environment is the one that runs here, without PySpark, which a cluster has: the versions that were tested, and no
download. It holds no Python. Some packages are compiled for one minor version of Python on one kind of machine.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
import os
import platform
import re
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path, PurePath

from fleet.errors import InvalidConfig

PYTHON = f"python{sys.version_info[0]}.{sys.version_info[1]}"
CODE, ENVIRONMENT, LISTING, JOB = "fleet.zip", "environment.tar.gz", "environment.txt", "fleet_job.py"
PACKAGES = "packages"
"""In the archive: the folder that belongs on PYTHONPATH."""
_OURS = ("coordinator", "fleet", "spark", "workers")
_THEIRS = frozenset({"pyspark", "py4j"})
_NOT_NEEDED = frozenset({"__pycache__", "tests", "include"})
_NOT_RUN = frozenset({".pyc", ".pyi", ".pyx", ".pxd", ".c", ".h", ".a"})
_AWS_SERVICES = frozenset({"sqs", "sso", "sso-oidc", "sts"})
"""The queue, and where credentials come from. botocore describes 400 more, in as many folders."""
_LAUNCHER = f"""\
#!/bin/sh
# {PYTHON} of this machine, with the packages that lie beside this file.
here=$(cd -- "$(dirname -- "$0")/.." && pwd) || exit 1
command -v {PYTHON} > /dev/null || {{ echo "fleet: there is no {PYTHON} in PATH of $(hostname)" >&2; exit 127; }}
PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}$here/{PACKAGES}" exec {PYTHON} "$@"
"""


@dataclass(frozen=True, slots=True)
class Packed:
    directory: Path
    is_new: bool
    """The environment was not there, or had other versions."""

    @property
    def code(self) -> Path:
        return self.directory / CODE

    @property
    def environment(self) -> Path:
        return self.directory / ENVIRONMENT

    @property
    def listing(self) -> Path:
        return self.directory / LISTING

    @property
    def job(self) -> Path:
        return self.directory / JOB

    @property
    def fits(self) -> str:
        return self.listing.read_text().partition("\n")[0].partition(";")[0]


def pack(directory: Path) -> Packed:
    """Write all the files there. The environment takes seconds, and is made only if it is missing or would differ."""
    directory.mkdir(parents=True, exist_ok=True)
    _write_if_other(directory / CODE, _code())
    source = importlib.util.find_spec("fleet.cli.fleet_job")
    assert source is not None
    assert source.origin is not None
    _write_if_other(directory / JOB, Path(source.origin).read_bytes())
    distributions = sorted(_needed(), key=lambda one: str(one.name).lower())
    listing = _listing(distributions).encode()
    file = directory / LISTING
    if file.is_file() and file.read_bytes() == listing and (directory / ENVIRONMENT).is_file():
        return Packed(directory, is_new=False)
    file.unlink(missing_ok=True)
    with _replacing(directory / ENVIRONMENT) as draft:
        _write_environment(draft, distributions)
    # Last: where the listing is, the archive is whole.
    _write_if_other(file, listing)
    return Packed(directory, is_new=True)


# Our code ------------------------------------------------------------------------------------------


def _code() -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for package in _OURS:
            spec = importlib.util.find_spec(package)
            if spec is None or spec.origin is None:
                raise InvalidConfig(f"cannot pack: there is no package {package} here")
            top = Path(spec.origin).parent
            for file in sorted(top.rglob("*")):
                path = file.relative_to(top.parent)
                if file.is_file() and _is_needed(path):
                    # No time of the file's own: it would make a different archive of the same code.
                    archive.writestr(zipfile.ZipInfo(str(path)), file.read_bytes())
    return made.getvalue()


# What it imports -----------------------------------------------------------------------------------


def _needed() -> Iterator[metadata.Distribution]:
    """Every installed distribution that `fleet[spark]` leads to. A marker may keep one from being installed here."""
    asked: set[tuple[str, str]] = set()
    found: set[str] = set()
    waiting = [("fleet", ""), ("fleet", "spark")]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in asked:
            continue
        asked.add((name, extra))
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            if name in ("fleet", "pyarrow", "pandas"):
                raise InvalidConfig(f"cannot pack: {name} is not installed (fleet[spark])") from None
            continue
        if name not in found:
            found.add(name)
            if name != "fleet":
                yield distribution
        for requirement in distribution.requires or ():
            waiting += _asked_for(requirement, extra)


def _asked_for(requirement: str, extra: str) -> Iterator[tuple[str, str]]:
    """What a requirement asks for, if the distribution that states it was asked for with this extra."""
    match = re.match(r"([\w.-]+)(?:\s*\[([^]]*)\])?", requirement)
    assert match is not None
    only_for = re.search(r"""extra\s*==\s*['"]([\w.-]+)['"]""", requirement)
    name = re.sub(r"[-_.]+", "-", match[1]).lower()
    if name in _THEIRS or (only_for[1] if only_for else "") != extra:
        return
    yield name, ""
    yield from ((name, one.strip()) for one in (match[2] or "").split(",") if one.strip())


def _listing(distributions: list[metadata.Distribution]) -> str:
    head = f"{PYTHON} {platform.system()} {platform.machine()} {' '.join(platform.libc_ver())}".strip()
    # Packed by other rules, it is another archive, even with the same versions.
    rules = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    return "\n".join([f"{head}; packed by {rules}", *(f"{one.name}=={one.version}" for one in distributions), ""])


def _write_environment(file: Path, distributions: list[metadata.Distribution]) -> None:
    with (
        file.open("wb") as raw,
        # Fast rather than small: it is made while somebody waits, and sent within one network.
        gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=1, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        launcher = tarfile.TarInfo("bin/python")
        launcher.mode, launcher.size = 0o755, len(_LAUNCHER.encode())
        archive.addfile(launcher, io.BytesIO(_LAUNCHER.encode()))
        for distribution in distributions:
            for path in distribution.files or ():
                # Programs lie outside the packages, and name an interpreter of this machine.
                if ".." in path.parts or not _is_needed(path):
                    continue
                member = archive.gettarinfo(str(path.locate()), f"{PACKAGES}/{path}")
                member.uid = member.gid = 0
                member.uname = member.gname = ""
                with Path(str(path.locate())).open("rb") as content:
                    archive.addfile(member, content)


def _is_needed(path: PurePath) -> bool:
    of_aws = path.parts[2:3] if path.parts[:2] == ("botocore", "data") and len(path.parts) > 3 else ()
    return not _NOT_NEEDED & set(path.parts) and path.suffix not in _NOT_RUN and set(of_aws) <= _AWS_SERVICES


# Files ---------------------------------------------------------------------------------------------


def _write_if_other(file: Path, content: bytes) -> None:
    if file.is_file() and file.read_bytes() == content:
        return
    with _replacing(file) as draft:
        draft.write_bytes(content)


@contextmanager
def _replacing(file: Path) -> Iterator[Path]:
    """Whole or not at all: another process may be packing or reading the same file."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        yield draft
        shutil.move(draft, file)
    finally:
        draft.unlink(missing_ok=True)
