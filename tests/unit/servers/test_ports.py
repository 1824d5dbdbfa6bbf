"""Servers of tests that run beside each other never meet at a port."""

from __future__ import annotations

import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.servers import ports

ROOT = Path(__file__).parents[3]
TAKE = "from tests.servers.ports import free_port; print(*(free_port() for _ in range(100)), flush=True); input()"


def test_two_processes_are_given_ports_of_their_own() -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", TAKE], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    try:
        taken = []
        for process in processes:
            assert process.stdout is not None
            taken += process.stdout.readline().split()
        taken += [str(ports.free_port()) for _ in range(100)]
        assert len(set(taken)) == 400
    finally:
        for process in processes:
            process.communicate("\n")


def test_two_threads_are_given_different_ports() -> None:
    with ThreadPoolExecutor(8) as threads:
        taken = list(threads.map(lambda _: ports.free_port(), range(200)))
    assert len(set(taken)) == 200


def test_a_port_that_somebody_has_is_passed_over_and_so_is_one_whose_second_is_taken() -> None:
    with socket.socket() as one, socket.socket() as another:
        one.bind(("127.0.0.1", ports.free_port()))
        another.bind(("127.0.0.1", ports.free_port(also=10_000) + 10_000))
        has, second = one.getsockname()[1], another.getsockname()[1]
        taken = {ports.free_port(also=10_000) for _ in range(2 * ports._BLOCK)}
    assert taken.isdisjoint({has, second - 10_000})
    assert len(taken) >= ports._BLOCK - 2 - 20, "the others all come in their turn"


@pytest.mark.parametrize("also", [0, 10_000])
def test_every_port_is_below_those_of_outgoing_connections(also: int) -> None:
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert ports.free_port(also=also) + also < lowest
