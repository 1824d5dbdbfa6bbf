"""Makes one attempt at a lease's message: how it is signed, whether its endpoint may be asked now, and the request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import msgspec

from fleet import failpoint
from fleet.delivery.breaker import Ask, Open
from fleet.delivery.origin import origin_of
from fleet.delivery.reply import Reply
from fleet.delivery.request import Requests
from fleet.delivery.signatures import Signatures, Unsignable
from fleet.outcome import Failed, NotSent, Outcome, Uncallable
from fleet.state.entry import Entry
from workers.lease import LaneLease

PROBE_PATIENCE_MS = 2000.0
"""How long a message waits for the probe of another one. It keeps its slot meanwhile."""

_JSON_HEADERS = ["Content-Type: application/json", "Accept: application/json"]
_encode = msgspec.json.Encoder().encode


class Mediator:
    def __init__(self, *, requests: Requests, signatures: Signatures, timeout_ms: int) -> None:
        self._requests = requests
        self._signatures = signatures
        self._timeout_ms = timeout_ms

    def send(
        self,
        lease: LaneLease,
        now_ms: float,
        *,
        again: Callable[[LaneLease], None],
        answered: Callable[[LaneLease, Reply], None],
    ) -> Outcome | None:
        """Returns the outcome if it is known at once and nothing is sent. Otherwise `answered` gets the reply, or
        `again` is called after a wait for the endpoint's breaker."""
        entry = lease.entry
        forbidden = self._requests.forbidden(entry.target)
        if forbidden is not None:
            return forbidden  # not acked: the rule may be the mistake
        signer = self._signatures.of(lease.link.pool.code)
        if isinstance(signer, Unsignable):
            return NotSent(signer.reason)
        origin = origin_of(entry.target)
        ticket = self._requests.admit(origin)
        if isinstance(ticket, Ask):
            lease.retry = self._requests.ask(origin, partial(again, lease))
            return None
        if isinstance(ticket, Open):
            if ticket.probed and lease.waits_for_probe(now_ms, PROBE_PATIENCE_MS):
                # In a few ms we know whether the endpoint works again; given back, the message would be gone for 30 s.
                loop = asyncio.get_running_loop()
                lease.retry = loop.call_later(ticket.retry_after_ms / 1000, again, lease)
                return None
            # No attempt of the message is spent on an endpoint that is known to fail.
            return NotSent(f"circuit breaker of {origin} is open")
        lease.ticket = ticket
        lease.attempt += 1
        lease.began_ms = now_ms
        sent = self._requests.post(
            ticket,
            entry.target,
            _headers(entry, lease),
            b'{"messageId":%b}' % _encode(entry.message_id),
            message_id=entry.message_id,
            signer=signer,
            timeout_ms=self._timeout_ms,
            done=partial(answered, lease),
        )
        if isinstance(sent, NotSent | Failed | Uncallable):
            return sent
        lease.transfer = sent
        failpoint.hit("posted")
        if failpoint.is_armed("requested"):
            # libcurl writes in a later turn of the loop.
            asyncio.get_running_loop().call_later(0.01, failpoint.hit, "requested")
        return None


def _headers(entry: Entry, lease: LaneLease) -> list[str]:
    headers = [
        *_JSON_HEADERS,
        f"Idempotency-Key: {entry.message_id}",
        f"Fleet-Pool: {lease.link.pool.code}",
        f"Fleet-Epoch: {lease.epoch}",
        f"Fleet-Attempt: {lease.attempt}",
    ]
    if entry.lane == entry.group:
        # A message that asks for no order has its own epoch: under its group's name it would fence its siblings.
        headers.append(f"Fleet-Group: {entry.group}")
    if entry.auth_token:
        headers.append(f"Authorization: Bearer {entry.auth_token}")
    return headers
