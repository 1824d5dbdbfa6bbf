"""Where a worker may not connect to, it does not, and the message is not lost for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stage import a_stage
from tests.waiting import until


@pytest.mark.parametrize("rule", ["127.0.0.0/8", "127.0.0.1"])
def test_a_forbidden_address_is_not_called_and_the_message_goes_back(tmp_path: Path, rule: str) -> None:
    with a_stage(tmp_path) as stage:
        stage.start_endpoint(latency_ms=0)
        stage.configure()
        stage.send_messages(1, 1)
        stage.start("coordinator")
        worker = stage.start("worker", FLEET_EGRESS_DENY=rule)
        until(lambda: "not delivered" in worker.text(), 30, stage.describe)
        assert not stage.endpoint_journal.exists() or stage.endpoint_journal.read_text() == ""
        assert stage.depth().invisible == 1


def test_a_rule_that_is_none_is_named_at_the_start(tmp_path: Path) -> None:
    with a_stage(tmp_path) as stage:
        worker = stage.start("worker", FLEET_EGRESS_DENY="10.0.0.0/99")
        until(lambda: not worker.alive, 20, stage.describe)
        assert worker.process.returncode == 1
        assert "10.0.0.0/99" in worker.text()
        assert "Traceback" not in worker.text()
