"""A real PostgreSQL of our own: a cluster in a temp folder, on loopback and a free port, for nobody else."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.servers.local import ServerFailed, ServerProcess, _running, _wait_for
from tests.servers.ports import free_port

_USER = "fleet"


@dataclass
class PostgresServer:
    server: ServerProcess
    port: int

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Its URL. It sorts as people do, not by bytes: a query that relies on the order of bytes has to ask for it."""
        name = f"t{secrets.token_hex(6)}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'")
        return self.url(name)

    def drop_database(self, url: str) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {url.rpartition('/')[2]} WITH (FORCE)")


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    with ExitStack() as stack:
        made = stack.enter_context(tempfile.TemporaryDirectory(prefix="fleet-postgres-", ignore_cleanup_errors=True))
        yield stack.enter_context(_postgres(Path(made), free_port()))


@contextmanager
def _postgres(directory: Path, port: int) -> Iterator[PostgresServer]:
    data, log = directory / "data", directory / "postgres.log"
    _make(directory, data)
    options = [
        "listen_addresses=127.0.0.1", f"port={port}", "unix_socket_directories=", "fsync=off",
        "max_connections=60", "shared_buffers=32MB", "timezone=Europe/Berlin",
    ]  # fmt: skip
    command = [*_as_owner(), _program("postgres"), "-D", str(data), *(p for o in options for p in ("-c", o))]
    with _running(command, log) as process:
        found = PostgresServer(process, port)
        _wait_for(process, lambda: _answers(found, data))
        yield found
        # SIGTERM would wait for every client that is still there.
        process.process.send_signal(signal.SIGINT)


def _make(directory: Path, data: Path) -> None:
    if os.geteuid() == 0:
        directory.chmod(0o755)
        data.mkdir()
        shutil.chown(data, _owner())
    command = [*_as_owner(), _program("initdb"), "-D", str(data), "-U", _USER, "-A", "trust", "-E", "UTF8",
               "--locale=C", "--no-sync", "--no-instructions"]  # fmt: skip
    # Not run from here: its user may not be allowed to look into this folder.
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", timeout=120)
    if done.returncode != 0:
        raise ServerFailed(f"initdb: {done.stderr[-500:]}")


def _as_owner() -> Sequence[str]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return ()
    return ("setpriv", f"--reuid={_owner()}", "--regid", str(pwd.getpwnam(_owner()).pw_gid), "--clear-groups")


def _owner() -> str:
    with suppress(KeyError):
        return pwd.getpwnam("postgres").pw_name
    return "nobody"


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        # Debian keeps them by version, out of PATH.
        newest = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4]))
        if not newest:
            raise ServerFailed(f"{name} is not installed; scripts/test installs what the tests need")
        found = str(newest[-1])
    return found


def _answers(found: PostgresServer, data: Path) -> bool:
    with suppress(psycopg.Error), psycopg.connect(found.url(), connect_timeout=2) as connection:
        row = connection.execute("SHOW data_directory").fetchone()
        # Our own one: another may have taken the port between the look and the start.
        return row is not None and row[0] == str(data)
    return False
