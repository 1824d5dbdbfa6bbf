"""A job store, the commands that speak to it, and the server that delivers from it."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from sqlalchemy import update

from fleet.jobs.database import open_engine, parse_url, writing
from fleet.jobs.schema import dispatch_jobs
from tests.acceptance.fleet_command import Fleet, Process
from tests.acceptance.site import address_in
from tests.servers.local import RedisServer


def an_office(directory: Path, redis: RedisServer, database_url: str, **more: str) -> Office:
    environment = {
        "FLEET_REDIS_URL": redis.url,
        "FLEET_DATABASE_URL": database_url,
        "FLEET_DATABASE_APP_KEY": "acceptance",
        "FLEET_LEASE_TTL_MS": "2000",
    }
    return Office(Fleet(directory, environment | more), database_url)


@dataclass
class Office:
    """A job store, and the commands that speak to it."""

    fleet: Fleet
    database: str

    def add(self, **given: Any) -> str:
        done = self.fleet.run("jobs", "add", "--file", "-", "--json", input_text=json.dumps({"payload": 1} | given))
        assert (done.code, done.err) == (0, "")
        (id_,) = done.document["ids"]
        return str(id_)

    def show(self, id_: str) -> Any:
        return self.fleet.run("jobs", "show", id_).document

    def token(self, id_: str) -> str:
        return hmac.new(b"acceptance", id_.encode(), hashlib.sha256).hexdigest()

    def forget_claim(self, id_: str) -> None:
        """As if its time were over."""
        engine = open_engine(parse_url(self.database))
        with writing(engine) as connection:
            connection.execute(update(dispatch_jobs).where(dispatch_jobs.c.id == id_).values(claimed_until_ms=1))
        engine.dispose()

    def process(self, address: str, id_: str, attempt: int = 1, token: str | None = None) -> requests.Response:
        return requests.post(
            f"{address}/api/dispatch/process?attempt={attempt}",
            json={"messageId": id_},
            headers={"Authorization": f"Bearer {self.token(id_) if token is None else token}"},
            timeout=25,
        )

    @contextmanager
    def server(self) -> Iterator[tuple[Process, str]]:
        with self.fleet.running("server", "--port", "0") as process:
            process.says("answers at")
            yield process, address_in(process)
