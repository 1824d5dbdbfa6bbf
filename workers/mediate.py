"""Delivers the messages of a lease one after the other: up to three attempts each, every one with its own deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec

from fleet import failpoint
from fleet.clock import Clock
from fleet.delivery.breaker import Ask, Open, Pass, Probe, spoke
from fleet.delivery.breakers import Breakers
from fleet.delivery.classify import classify
from fleet.delivery.client import BadUrl, HttpClient
from fleet.delivery.origin import origin_of
from fleet.delivery.reply import Reply
from fleet.delivery.signatures import Signatures, Unsignable
from fleet.outcome import Failed, NotSent, Outcome, Uncallable, Unreachable
from fleet.state.entry import Entry
from workers.claim import GroupLease
from workers.gate import Gate, gate

ATTEMPTS = 3
BACKOFF_S = (1.0, 2.0)
PROBE_PATIENCE_MS = 2000.0
"""A message waits for the probe of another one this long. Its slot is taken meanwhile."""

_JSON_HEADERS = ["Content-Type: application/json", "Accept: application/json"]
_encode = msgspec.json.Encoder().encode


class Mediator:
    def __init__(
        self,
        *,
        client: HttpClient,
        clock: Clock,
        timeout_ms: int,
        forbids_url: Callable[[str], bool],
        breakers: Breakers,
        signatures: Signatures,
        on_outcome: Callable[[GroupLease, Outcome, float], None],
        on_blocked: Callable[[GroupLease, Gate], None],
        backoff_s: tuple[float, float] = BACKOFF_S,
    ) -> None:
        self._client = client
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._forbids_url = forbids_url
        self._breakers = breakers
        self._signatures = signatures
        self._on_outcome = on_outcome
        self._on_blocked = on_blocked
        self._backoff_s = backoff_s

    def deliver(self, lease: GroupLease) -> None:
        """Send the message that is next under this lease."""
        lease.attempt = 0
        lease.probed_since_ms = 0.0
        self._attempt(lease)

    def _attempt(self, lease: GroupLease) -> None:
        lease.retry = None
        now_ms = self._clock.boot_ms()
        verdict = gate(lease, now_ms)
        if verdict is not Gate.OPEN:
            self._on_blocked(lease, verdict)
            return
        entry = lease.entry
        if self._forbids_url(entry.target):
            # By its name; by its address it is judged when it is connected to. Not acked: the rule may be the mistake.
            self._report_soon(lease, NotSent(f"egress rules forbid {origin_of(entry.target)}", warn=True))
            return
        signer = self._signatures.of(lease.link.pool.code)
        if isinstance(signer, Unsignable):
            self._report_soon(lease, NotSent(signer.reason))
            return
        origin = origin_of(entry.target)
        match self._breakers.admit(origin, now_ms):
            case Pass():
                probe = False
            case Probe():
                probe = True
                lease.on_stop = partial(self._breakers.release, origin)
            case Ask():
                lease.retry = self._breakers.ask(origin, partial(self._attempt, lease))
                return
            case Open(retry_after_ms=after_ms, probed=True) if lease.waits_for_probe(now_ms, PROBE_PATIENCE_MS):
                # In some ms it is known whether the endpoint works again; given back, it would be gone for 30 s.
                lease.retry = asyncio.get_running_loop().call_later(after_ms / 1000, self._attempt, lease)
                return
            case Open():
                # No attempt of the message is spent on an endpoint that is known to fail.
                self._report_soon(lease, NotSent(f"circuit breaker of {origin} is open"))
                return
        lease.attempt += 1
        lease.began_ms = now_ms
        headers = _headers(entry, lease)
        body = b'{"messageId":%b}' % _encode(entry.message_id)
        if signer is not None:
            headers += signer.headers(entry.message_id, self._clock.wall_ms() // 1000, body)
        try:
            lease.transfer = self._client.post(
                entry.target,
                headers,
                body,
                timeout_ms=self._timeout_ms,
                done=partial(self._answered, lease, origin, probe),
            )
        except Exception as error:
            lease.stop()
            if isinstance(error, BadUrl):
                self._report_soon(lease, Uncallable(f"no URL that could be called: {error}"))
            else:
                # Whatever it is, it is no answer of the endpoint: never an ack.
                reason = f"the request cannot be made ({type(error).__name__}: {error})"
                self._report_soon(lease, Failed(reason, unexpected=True))
            return
        failpoint.hit("posted")
        if failpoint.is_armed("requested"):
            # libcurl writes in a later turn of the loop.
            asyncio.get_running_loop().call_later(0.01, failpoint.hit, "requested")

    def _answered(self, lease: GroupLease, origin: str, probe: bool, reply: Reply) -> None:
        lease.transfer = None
        lease.on_stop = None
        now_ms = self._clock.boot_ms()
        works = spoke(reply)
        if works is not None:
            self._breakers.record(origin, works, now_ms, probe=probe)
        elif probe:
            self._breakers.release(origin)
        if now_ms >= lease.deadline_ms:
            # Read too late: somebody else may deliver this group by now, and his answer counts.
            self._on_blocked(lease, Gate.LAPSED)
            return
        failpoint.hit("answered")
        outcome = classify(reply)
        again = isinstance(outcome, Unreachable) or (isinstance(outcome, Failed) and outcome.again_at_once)
        if again and lease.attempt < ATTEMPTS and not lease.link.stopping:
            delay_s = self._backoff_s[lease.attempt - 1]
            lease.resumes_ms = now_ms + delay_s * 1000
            lease.retry = asyncio.get_running_loop().call_later(delay_s, self._attempt, lease)
            return
        self._on_outcome(lease, outcome, reply.seconds)

    def _report_soon(self, lease: GroupLease, outcome: Outcome) -> None:
        """Not at once: a thousand messages for one dead endpoint would be a thousand calls deep."""
        asyncio.get_running_loop().call_soon(self._report, lease, outcome)

    def _report(self, lease: GroupLease, outcome: Outcome) -> None:
        if lease.link.leases.get(lease.group) is lease:
            self._on_outcome(lease, outcome, 0.0)


def _headers(entry: Entry, lease: GroupLease) -> list[str]:
    headers = [
        *_JSON_HEADERS,
        f"Idempotency-Key: {entry.message_id}",
        f"Fleet-Pool: {lease.link.pool.code}",
        f"Fleet-Epoch: {lease.epoch}",
        f"Fleet-Attempt: {lease.attempt}",
    ]
    if entry.lane == entry.group:
        # One that asks for no order has an epoch of its own: under its group's name it would fence its siblings.
        headers.append(f"Fleet-Group: {entry.group}")
    if entry.auth_token:
        headers.append(f"Authorization: Bearer {entry.auth_token}")
    return headers
