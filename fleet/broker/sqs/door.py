"""The door: a request in, a reply out. `answer` does no I/O but what the verbs do; http.py carries it."""

from __future__ import annotations

import itertools
import logging
import secrets
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from fleet.broker.sqs import errors, json, names, query, xml
from fleet.broker.sqs.call import Call, Protocol, Reply
from fleet.broker.sqs.counts import DoorCounts, outcome_of
from fleet.broker.sqs.errors import SqsError
from fleet.broker.sqs.shapes import VERBS
from fleet.broker.sqs.sign import Signatures
from fleet.clock import Clock
from fleet.errors import StateFull, StateUnavailable
from fleet.metrics.sqs import FAILED, OK

log = logging.getLogger("fleet.sqs")

Verb = Callable[[Call], Awaitable[dict[str, Any] | None]]
Headers = Mapping[bytes, bytes]

_NOT_OF_A_QUEUE = ("CreateQueue", "ListQueues")
_HEALTH = ("/", "/health")
_PLAIN = b"text/plain; charset=utf-8"


class Door:
    """Reads a request, checks who sent it, has its verb answer, and writes the result in the words of its protocol."""

    def __init__(
        self,
        verbs: Mapping[str, Verb],
        *,
        keys: Mapping[str, str],
        clock: Clock,
        loopback_only: bool = True,
        counts: DoorCounts | None = None,
    ) -> None:
        """`loopback_only`: where nobody signs, whether a request must name this machine in its Host."""
        unknown = verbs.keys() - VERBS.keys()
        assert not unknown, f"no verbs of SQS: {sorted(unknown)}"
        self._verbs = verbs
        self._signatures = Signatures(keys)
        self._clock = clock
        self._counts = counts if counts is not None else DoorCounts()
        self._loopback_only = loopback_only and not keys

    async def answer(
        self,
        method: str,
        path: bytes,
        query_string: bytes,
        headers: Headers,
        body: bytes,
        *,
        scheme: str = "http",
        is_gone: Callable[[], bool] | None = None,
    ) -> Reply:
        """`path` and `query_string` as they came, still escaped; the names of `headers` in lower case."""
        target = headers.get(b"x-amz-target")
        if target is None and not query_string and method != "POST":
            return _without_a_verb(method, path)
        protocol: Protocol = "query" if target is None and not _is_json(headers) else "json"
        request_id = _new_id()
        verb, outcome, began_s = "", OK, time.perf_counter()
        try:
            host = headers.get(b"host", b"").decode("latin-1")
            if self._loopback_only:
                _check_neighbour(host, headers)
            base = names.base_url(scheme, host)
            if self._signatures:
                now_s = self._clock.wall_ms() / 1000
                self._signatures.check(method, path, query_string, headers, body, now_s=now_s)
            if protocol == "json":
                verb = json.verb_of((target or b"").decode("latin-1"))
                params = json.decode(verb, body)
            else:
                verb, params = _by_query(method, path, query_string, headers, body)
            answering = self._verbs.get(verb)
            if answering is None:
                raise errors.unsupported(f"{verb} is not supported.")
            call = Call(
                verb=verb,
                params=params,
                protocol=protocol,
                base_url=base,
                queue_name=_queue_of(verb, params, path),
                request_id=request_id,
            )
            if is_gone is not None:
                call.is_gone = is_gone
            _check_needs(call)
            result = await answering(call)
            if protocol == "json":
                return _reply(200, json.CONTENT_TYPE, request_id, json.encode(result))
            return _reply(200, xml.CONTENT_TYPE, request_id, xml.encode(verb, result, request_id))
        except SqsError as error:
            outcome = outcome_of(error)
            return _refused(error, protocol, request_id)
        except (StateUnavailable, StateFull) as error:
            outcome = FAILED
            # Without the id of the request: an outage is one line, however many requests meet it.
            log.warning("requests are answered by 503: %s", error)
            return _refused(errors.service_unavailable(), protocol, request_id)
        except Exception:
            outcome = FAILED
            log.exception("request %s failed", request_id)
            return _refused(errors.internal_failure(), protocol, request_id)
        finally:
            self._counts.request(verb, outcome, time.perf_counter() - began_s)


def _check_neighbour(host: str, headers: Headers) -> None:
    """Where nobody signs: SqsError for what a page of another site had somebody's browser send."""
    if not names.is_loopback(host):
        raise errors.access_denied("Without access keys this server answers only requests to localhost.")
    # A form of theirs needs no leave of ours to be sent, and an action in a URL not even a form.
    origin = headers.get(b"origin")
    is_theirs = origin is not None and not names.is_loopback(origin.decode("latin-1").partition("://")[2])
    if is_theirs or headers.get(b"sec-fetch-site") == b"cross-site":
        raise errors.access_denied("Requests from pages of another site are not answered.")


def _by_query(
    method: str, path: bytes, query_string: bytes, headers: Headers, body: bytes
) -> tuple[str, dict[str, Any]]:
    """The verb and its parameters, out of a URL and, for a POST, its form."""
    fields = query.pairs(query_string) if query_string else {}
    if method == "POST" and body:
        kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
        if kind and kind != query.FORM:
            raise errors.serialization(f"The content type {kind[:100]} is neither a form nor AWS JSON.")
        fields |= query.pairs(body)
    verb = fields.get("Action", "")
    if not verb:
        raise errors.unknown_operation()
    if verb not in VERBS or (verb in _NOT_OF_A_QUEUE and _name_in(path)):
        raise errors.invalid_action(verb)
    return verb, query.decode(verb, fields)


def _queue_of(verb: str, params: dict[str, Any], path: bytes) -> str:
    url = params.get("QueueUrl")
    if url is None and "QueueUrl" in VERBS[verb].needs:
        return _name_in(path)
    return names.name_of_url(url) if url else ""


def _name_in(path: bytes) -> str:
    return names.name_of_url(path.decode("latin-1")) if len(path) > 1 else ""


def _check_needs(call: Call) -> None:
    params = call.params
    for name in VERBS[call.verb].needs:
        if name == "QueueUrl":
            if not call.queue_name:
                # A URL that names none is the URL of no queue.
                raise errors.no_such_queue() if "QueueUrl" in params else errors.missing_parameter(name)
        elif name not in params:
            raise errors.missing_parameter(name)


def _is_json(headers: Headers) -> bool:
    return headers.get(b"content-type", b"").startswith(json.CONTENT_TYPE)


_ID_PREFIX = str(uuid.uuid4())[:24]
_numbers = itertools.count(secrets.randbits(40))


def _new_id() -> str:
    """Unlike any other's, in the form of AWS: the end counts, as asking the kernel each time takes twice as long."""
    return f"{_ID_PREFIX}{next(_numbers):012x}"


def _reply(status: int, kind: bytes, request_id: str, body: bytes, more: Iterable[tuple[bytes, bytes]] = ()) -> Reply:
    return Reply(
        status,
        [
            (b"content-type", kind),
            (b"content-length", b"%d" % len(body)),
            (b"x-amzn-requestid", request_id.encode()),
            *more,
        ],
        body,
    )


def refusal(error: SqsError, headers: Headers) -> Reply:
    """Of a request that nobody has read."""
    return _refused(error, "json" if _is_json(headers) else "query", _new_id())


def _refused(error: SqsError, protocol: Protocol, request_id: str) -> Reply:
    more = [(name.lower().encode(), value.encode()) for name, value in error.headers.items()]
    if protocol == "json":
        more.append((b"x-amzn-query-error", f"{error.code};{error.fault}".encode()))
        return _reply(error.status, json.CONTENT_TYPE, request_id, json.encode_error(error), more)
    if error.code == "UnknownOperationException":  # AWS has no envelope for it
        return _reply(error.status, xml.CONTENT_TYPE, request_id, xml.UNKNOWN_OPERATION, more)
    return _reply(error.status, xml.CONTENT_TYPE, request_id, xml.encode_error(error, request_id), more)


def _without_a_verb(method: str, path: bytes) -> Reply:
    """A probe, or somebody who looks what is here."""
    request_id = _new_id()
    if method == "OPTIONS":
        return _reply(204, _PLAIN, request_id, b"", [(b"allow", b"GET, POST, OPTIONS")])
    if method in ("GET", "HEAD") and path.decode("latin-1") in _HEALTH:
        return _reply(200, _PLAIN, request_id, b"ok\n" if method == "GET" else b"")
    return _reply(404, xml.CONTENT_TYPE, request_id, xml.UNKNOWN_OPERATION)
