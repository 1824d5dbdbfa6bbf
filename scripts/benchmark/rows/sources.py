"""The whole path from each other kind of queue, and what boto3 alone does beside ours."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import uvloop

from benchmark.ground import Ground
from benchmark.house.fill import fill_queue
from benchmark.house.origins import CREDENTIALS, activemq, nats, own, sqs, sqs_responder
from benchmark.machine import child
from benchmark.machine.needs import need
from benchmark.rows.drain import WHOLE_PATH, WholePath, source_depth
from benchmark.scenario import Budget, Kind, Measurement, Scenario

_SQS_COUNT, _NATS_COUNT, _ACTIVEMQ_COUNT = 20_000, 60_000, 20_000
_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BareSqs(Scenario):
    """boto3 in a loop: receive ten, delete ten, from the responder that `path-sqs` drains too."""

    name: str = "bare-sqs"
    title: str = "boto3 alone, receive and delete"
    kind: Kind = "limit"

    def attempt(self, ground: Ground, _setting: str) -> Measurement:
        count = ground.scaled(_SQS_COUNT)
        with sqs_responder(ground.scratch) as (url, _pid), source_depth(url) as depth:
            ground.say(f"publishing {count:,} messages")
            uvloop.run(fill_queue(url, count=count, groups=ground.groups, target=ground.sink.url))
            output = child.call(
                [sys.executable, "-P", "-m", "benchmark.peers.bare_sqs", url, str(count)],
                log=ground.scratch / "bare-sqs.log",
                timeout_s=_TIMEOUT_S,
                environment=CREDENTIALS,
            )
            left = depth()
        problems = (f"{left} left in the queue",) if left else ()
        return Measurement(value=count / float(output.split()[-1]), problems=problems, details={"deleted": count})


@dataclass(frozen=True, slots=True, kw_only=True)
class FromServer(WholePath):
    """From a queue whose server is installed first."""

    needs: tuple[tuple[str, str], ...] = ()

    def prepare(self, ground: Ground) -> None:
        for program, package in self.needs:
            need(program, package, repository=ground.repository, log=ground.scratch / "need.log")


_SETTINGS = ("256 at once", "1000 at once")
SCENARIOS = (
    BareSqs(),
    WholePath(
        name="path-own",
        title="Fleet, whole path from a queue of our own in Redis",
        origin=own,
        budgets=(Budget(of=WHOLE_PATH, at_least=1.0),),
    ),
    WholePath(
        name="path-sqs",
        title="Fleet, whole path from SQS (an in-memory responder)",
        origin=sqs,
        count=_SQS_COUNT,
        connections=4,
        settings=_SETTINGS,
        budgets=(Budget(of="bare-sqs", at_least=0.5),),
    ),
    FromServer(
        name="path-nats",
        title="Fleet, whole path from NATS JetStream (file storage)",
        origin=nats,
        count=_NATS_COUNT,
        settings=_SETTINGS,
        budgets=(),
        needs=(("nats-server", "nats-server"),),
    ),
    FromServer(
        name="path-activemq",
        title="Fleet, whole path from ActiveMQ (KahaDB)",
        origin=activemq,
        count=_ACTIVEMQ_COUNT,
        settings=_SETTINGS,
        budgets=(),
        needs=(
            ("java", "default-jre-headless"),
            ("activemq", "activemq"),
            ("/usr/share/java/xstream.jar", "libxstream-java"),
        ),
    ),
)
