"""No request, however it is made, is our failure: it is answered, or refused with an error of the sender's."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import urlencode

from hypothesis import given
from hypothesis import strategies as st

from fleet.broker.sqs import asked, batch, message, ranges
from fleet.broker.sqs.attributes import Attributes, create, wants_fifo
from fleet.broker.sqs.call import Call
from fleet.broker.sqs.door import Door
from fleet.broker.sqs.handle import decode
from fleet.broker.sqs.names import check_name
from fleet.broker.sqs.shapes import VERBS
from tests.unit.broker.sqs.wire import ALL_VERBS, HOST, StoppedClock

QUEUES = (Attributes(), Attributes(fifo=True), Attributes(fifo=True, content_dedup=True))


async def judged(call: Call) -> dict[str, Any] | None:
    """What the verbs do with a call before they touch a queue."""
    params = call.params
    queue = QUEUES[len(params) % 3]
    given_ = params.get("Attributes", {})
    if call.verb == "CreateQueue":
        check_name(params["QueueName"], fifo=wants_fifo(given_))
        create(given_).check_same(given_)
    elif call.verb == "SetQueueAttributes":
        queue.changed(given_)
    elif call.verb == "SendMessage":
        return message.check(params, queue).receipt()
    elif call.verb == "ReceiveMessage":
        asked.system_attributes(params)
        asked.message_attributes(params.get("MessageAttributeNames", ()), {"a.b": {}})
        return {"n": [ranges.messages(params), ranges.wait_s(params, 0), ranges.visibility_s(params, 30)]}
    elif call.verb.endswith("Batch"):
        entries = batch.check(call.verb, params)
        if call.verb == "SendMessageBatch":
            batch.check_sent(entries, queue)
            for entry in entries:
                message.check(entry, queue, in_batch=True)
    elif "ReceiptHandle" in params:
        decode(params["ReceiptHandle"], queue="q", incarnation=1, partitions=4)
    return {}


OPEN = Door(dict.fromkeys(ALL_VERBS, judged), keys={}, clock=StoppedClock())
SIGNED = Door(dict.fromkeys(ALL_VERBS, judged), keys={"AKID": "secret"}, clock=StoppedClock())

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=10,
)
wires = sorted({wire for verb in VERBS.values() for wire in verb.takes.by_name})
parts = st.sampled_from([*wires, "1", "2", "0", "-1", "Name", "Value", "Key", "Id", "StringValue", "DataType", "", "ü"])
fields = st.lists(parts, min_size=1, max_size=5).map(".".join)


def status(one: Door, method: str, path: bytes, query: bytes, headers: dict[bytes, bytes], body: bytes) -> int:
    reply = asyncio.run(one.answer(method, path, query, headers, body))
    assert dict(reply.headers)[b"content-length"] == b"%d" % len(reply.body)
    return reply.status


@given(st.sampled_from(ALL_VERBS), st.data())
def test_a_json_request_of_any_content(verb: str, data: st.DataObject) -> None:
    names = [*VERBS[verb].takes.members, "Else"]
    params = data.draw(st.dictionaries(st.sampled_from(names), anything, max_size=6))
    headers = {b"host": HOST.encode(), b"x-amz-target": f"AmazonSQS.{verb}".encode()}
    assert status(OPEN, "POST", b"/0/q", b"", headers, json.dumps(params).encode()) < 500


@given(st.sampled_from(ALL_VERBS), st.dictionaries(fields, st.text(max_size=20), max_size=8))
def test_a_form_of_any_content(verb: str, form: dict[str, str]) -> None:
    body = urlencode({**form, "Action": verb}, errors="surrogatepass").encode()
    assert status(OPEN, "POST", b"/0/q", b"", {b"host": HOST.encode()}, body) < 500


@given(
    st.sampled_from(["GET", "POST", "PUT", "HEAD", "OPTIONS", "X"]),
    st.binary(max_size=30).map(lambda path: b"/" + path),
    st.binary(max_size=60),
    st.dictionaries(
        st.sampled_from([b"host", b"x-amz-target", b"content-type", b"authorization", b"x-amz-date"]),
        st.binary(max_size=40),
    ),
    st.binary(max_size=200),
)
def test_bytes_of_any_kind(method: str, path: bytes, query: bytes, headers: dict[bytes, bytes], body: bytes) -> None:
    assert status(SIGNED, method, path, query, headers, body) < 500
    assert status(OPEN, method, path, query, {**headers, b"host": HOST.encode()}, body) < 500


@given(st.binary(max_size=60), st.binary(max_size=60), st.binary(max_size=20))
def test_a_signature_of_any_bytes(credential: bytes, signed: bytes, date: bytes) -> None:
    headers = {
        b"host": HOST.encode(),
        b"x-amz-date": date,
        b"authorization": b"AWS4-HMAC-SHA256 Credential=AKID/%b, SignedHeaders=%b, Signature=%b"
        % (credential, signed, b"0" * 64),
    }
    query = b"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKID/%b&X-Amz-SignedHeaders=%b&X-Amz-Date=%b" % (
        credential,
        signed,
        date,
    )
    query += b"&X-Amz-Expires=60&X-Amz-Signature=\xff"
    assert 400 <= status(SIGNED, "POST", b"/", b"", headers, b"") < 500
    assert 400 <= status(SIGNED, "GET", b"/0/q", query, {b"host": HOST.encode()}, b"") < 500
