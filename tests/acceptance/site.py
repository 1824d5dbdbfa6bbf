"""A fleet with a server, and what its tests ask it with. `site` of `conftest.py` runs one."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from tests.acceptance.fleet_command import Fleet, Process

SECRET = "not-for-any-page"


@dataclass
class Site:
    """A fleet that runs, and the address of its server."""

    fleet: Fleet
    up: Process
    address: str
    endpoint: str

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> requests.Response:
        data = None if body is None else json.dumps(body)
        return requests.request(method, self.address + path, data=data, headers=headers, timeout=15)

    def get(self, path: str, status: int = 200) -> Any:
        answer = self.ask("GET", path)
        assert answer.status_code == status, answer.text
        return answer.json()

    def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        answer = self.ask("POST", path, body)
        assert answer.status_code == status, answer.text
        return answer.json()

    def metrics(self) -> dict[str, float]:
        lines = self.ask("GET", "/metrics").text.splitlines()
        return {name: float(value) for name, value in (s.rsplit(" ", 1) for s in lines if not s.startswith("#"))}


def config(tmp_path: Path, *pools: dict[str, Any]) -> str:
    queue = {"queueName": "orders", "queueUri": f"sqlite:///{tmp_path}/q.db?queue=orders"}
    return json.dumps({"queues": [queue], "processingPools": [*pools]})


def address_in(process: Process) -> str:
    found = re.search(r"(?:Server:|answers at) (http://\S+)", process.text())
    assert found is not None, process.text()
    return found[1]


def message(site: Site, id_: str, *, path: str = "/fast", **more: Any) -> dict[str, Any]:
    return {"id": id_, "poolCode": "P", "mediationTarget": site.endpoint + path, "authToken": SECRET} | more


def source_is_empty(site: Site) -> bool:
    queue = site.get("/monitoring/queue-stats")["orders"]
    return bool(queue["pendingMessages"] == queue["messagesNotVisible"] == queue["currentSize"] == 0)
