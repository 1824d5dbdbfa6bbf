"""Every process can show its own counters."""

from __future__ import annotations

from pathlib import Path

import requests

from tests.servers.ports import free_port
from tests.stage import POOL, QUEUE, a_stage
from tests.waiting import until


def test_each_process_shows_its_own(tmp_path: Path) -> None:
    with a_stage(tmp_path) as stage:
        stage.start_endpoint(latency_ms=0)
        stage.configure()
        ports = {"coordinator": free_port(), "worker": free_port()}
        for role, port in ports.items():
            stage.start(role, "--metrics-port", str(port))
        stage.send_messages(20, 4)
        stage.wait_drained(30)
        pages = {role: requests.get(f"http://127.0.0.1:{port}/metrics", timeout=5).text for role, port in ports.items()}
        assert f'fleet_messages_total{{pool="{POOL}",outcome="SUCCESS"}} 20' in pages["worker"]
        assert f'fleet_delivery_seconds_count{{pool="{POOL}"}} 20' in pages["worker"]
        assert f'fleet_queue_acked_total{{queue="{QUEUE}"}} 20' in pages["coordinator"]
        assert QUEUE not in pages["worker"]
        taken = stage.start("worker", "--metrics-port", str(ports["worker"]))
        until(lambda: not taken.alive, 20, stage.describe)
        assert taken.process.returncode == 1
        assert (
            f"metrics port {ports['worker']}: Address already in use" in taken.text()
            and "Traceback" not in taken.text()
        )
