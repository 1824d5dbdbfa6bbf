"""A TCP proxy between Fleet and a broker, whose line can be cut, mended, moved and made silent."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_CHUNK = 65536


class Proxy:
    """Each connection is two threads that copy bytes. While the line is cut every connection is reset, a new one
    too."""

    def __init__(self, target_port: int) -> None:
        self._target = ("127.0.0.1", target_port)
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._silent: set[socket.socket] = set()
        self._is_cut = False
        self._left: dict[bool, int] = {}
        """How many more bytes go through to the broker (True), or from it (False), if that is limited."""
        self.broke = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        with self._lock:
            self._is_cut = True
            lines, self._open = self._open, set()
        for line in lines:
            _reset(line)

    def cut_after(self, count: int) -> None:
        """Cut it once so many more bytes have gone to the broker, perhaps in the middle of a message."""
        self._left[True] = count

    def break_after(self, count: int) -> None:
        """Break one connection once so many more bytes have come from the broker. A new one goes through."""
        self._left[False] = count

    def mend(self) -> None:
        with self._lock:
            self._is_cut = False
            self._left.clear()

    def move(self, target_port: int) -> None:
        """Like a virtual address: a client that connects from now on comes to another server. Open connections stay."""
        self._target = ("127.0.0.1", target_port)

    def silence(self) -> None:
        """Like a middlebox that forgot its connections: what is sent on them goes nowhere. New ones work."""
        with self._lock:
            self._silent |= self._open

    @property
    def connections(self) -> int:
        return len(self._open) // 2

    def close(self) -> None:
        self.cut()
        # Closing alone does not wake a thread that waits in accept.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._target, timeout=5)
                far.settimeout(None)
            except OSError:
                _reset(near)
                continue
            with self._lock:
                refused = self._is_cut
                if not refused:
                    self._open |= {near, far}
            if refused:
                _reset(near)
                _reset(far)
                continue
            for source, sink, to_broker in ((near, far, True), (far, near, False)):
                threading.Thread(target=self._copy, args=(source, sink, to_broker), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket, to_broker: bool) -> None:
        with suppress(OSError):
            while chunk := source.recv(_CHUNK):
                if source in self._silent:
                    continue
                left = self._left.get(to_broker)
                if left is None:
                    sink.sendall(chunk)
                    continue
                sink.sendall(chunk[:left])
                self._left[to_broker] = left - len(chunk)
                if left > len(chunk):
                    continue
                del self._left[to_broker]
                self.broke = True
                if to_broker:
                    self.cut()
                break
        with self._lock:
            self._open -= {source, sink}
            self._silent -= {source, sink}
        _reset(source)
        _reset(sink)


def _reset(line: socket.socket) -> None:
    with suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)
    line.close()


@contextmanager
def proxied(target_port: int) -> Iterator[Proxy]:
    proxy = Proxy(target_port)
    try:
        yield proxy
    finally:
        proxy.close()
