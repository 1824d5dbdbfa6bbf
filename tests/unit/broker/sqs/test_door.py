"""The door: which request goes where, and what goes back when it does not."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from fleet.broker.sqs import errors
from fleet.broker.sqs.call import Call, Reply
from fleet.broker.sqs.door import Door
from fleet.errors import NotUp, StateFull, StateUnavailable
from fleet.state.outages import Outages
from tests.unit.broker.sqs.wire import HOST, QUEUE, StoppedClock

FORM = b"application/x-www-form-urlencoded; charset=utf-8"


async def echo(call: Call) -> dict[str, Any] | None:
    return {"QueueUrl": f"{call.base_url}/{call.queue_name}"}


def raising(error: Exception) -> Callable[[Call], Awaitable[dict[str, Any] | None]]:
    async def verb(_: Call) -> dict[str, Any] | None:
        raise error

    return verb


def door(**verbs: Any) -> Door:
    return Door({"GetQueueUrl": echo, **verbs}, keys={}, clock=StoppedClock())


async def asked(one: Door, method: str = "POST", url: str = "/", body: bytes = b"", **headers: str) -> Reply:
    path, _, query = url.partition("?")
    named = {name.replace("_", "-").encode(): value.encode("latin-1") for name, value in headers.items()}
    return await one.answer(method, path.encode(), query.encode(), {b"host": HOST.encode(), **named}, body)


async def by_json(one: Door, verb: str, body: bytes = b"{}", url: str = "/", **headers: str) -> Reply:
    given = {"content_type": "application/x-amz-json-1.0", "x_amz_target": f"AmazonSQS.{verb}", **headers}
    return await asked(one, "POST", url, body, **given)


def header(reply: Reply, name: str) -> str:
    return dict(reply.headers).get(name.encode(), b"").decode()


def kind(reply: Reply) -> str:
    found: str = msgspec.json.decode(reply.body)["__type"]
    return found


async def test_a_url_names_the_queue_by_its_last_segment_whatever_its_host() -> None:
    calls: list[Call] = []

    async def verb(call: Call) -> None:
        calls.append(call)

    for url in (QUEUE, "https://sqs.eu-west-1.amazonaws.com/123456789012/q", "q"):
        await by_json(door(PurgeQueue=verb), "PurgeQueue", msgspec.json.encode({"QueueUrl": url}))
    assert [call.queue_name for call in calls] == ["q", "q", "q"]
    assert {call.base_url for call in calls} == {"http://localhost:9324"}
    assert len({call.request_id for call in calls}) == 3


@pytest.mark.parametrize("by", ["json", "query"])
async def test_the_path_names_the_queue_where_nothing_else_does(by: str) -> None:
    calls: list[Call] = []

    async def verb(call: Call) -> None:
        calls.append(call)

    one = door(PurgeQueue=verb)
    if by == "json":
        await by_json(one, "PurgeQueue", url="/000000000000/q")
    else:
        await asked(one, "GET", "/000000000000/q?Action=PurgeQueue")
    assert calls[0].queue_name == "q"


async def test_a_query_url_wins_over_the_path() -> None:
    calls: list[Call] = []

    async def verb(call: Call) -> None:
        calls.append(call)

    await asked(
        door(PurgeQueue=verb),
        "POST",
        "/000000000000/q",
        b"Action=PurgeQueue&QueueUrl=/0/other",
        content_type=FORM.decode(),
    )
    assert calls[0].queue_name == "other"


async def test_a_reply_says_how_long_it_is_and_which_request_it_answers() -> None:
    reply = await by_json(door(), "GetQueueUrl", b'{"QueueName":"q"}')
    assert reply.status == 200
    assert header(reply, "content-type") == "application/x-amz-json-1.0"
    assert header(reply, "content-length") == str(len(reply.body))
    assert len(header(reply, "x-amzn-requestid")) == 36
    reply = await asked(door(), "GET", "/?Action=GetQueueUrl&QueueName=q")
    assert header(reply, "content-type") == "text/xml"
    assert header(reply, "x-amzn-requestid").encode() in reply.body


@pytest.mark.parametrize(
    ("body", "type_", "told"),
    [
        (b"{}", "MissingRequiredParameterException", "The request must contain the parameter QueueUrl."),
        (b'{"QueueUrl":"http://localhost"}', "QueueDoesNotExist", "The specified queue does not exist."),
        (
            msgspec.json.encode({"QueueUrl": QUEUE}),
            "MissingRequiredParameterException",
            "The request must contain the parameter MessageBody.",
        ),
        (b"{", "SerializationException", "The request is not valid JSON."),
    ],
)
async def test_what_a_verb_needs_is_there_before_it_is_asked(body: bytes, type_: str, told: str) -> None:
    reply = await by_json(door(SendMessage=raising(AssertionError())), "SendMessage", body)
    assert reply.status == 400
    assert msgspec.json.decode(reply.body) == {"__type": type_, "message": told}
    assert header(reply, "x-amzn-query-error").endswith(";Sender")


async def test_a_get_without_a_body_misses_its_body() -> None:
    reply = await asked(door(SendMessage=echo), "GET", "/000000000000/q?Action=SendMessage")
    assert b"<Code>MissingParameter</Code>" in reply.body
    assert b"<Message>The request must contain the parameter MessageBody.</Message>" in reply.body


@pytest.mark.parametrize(
    "url", ["/?Action=FooBar", "/000000000000/q?Action=CreateQueue", "/000000000000/q?Action=ListQueues"]
)
async def test_an_action_that_is_none_or_none_of_a_queue_is_invalid(url: str) -> None:
    reply = await asked(door(CreateQueue=echo, ListQueues=echo), "GET", url)
    action = url.rpartition("=")[2].encode()
    assert reply.status == 400
    assert b"<Code>InvalidAction</Code>" in reply.body
    assert b"<Message>The action " + action + b" is not valid for this endpoint.</Message>" in reply.body


@pytest.mark.parametrize(
    ("method", "url", "body"),
    [
        ("GET", "/000000000000/q", b""),
        ("GET", "/?Version=2012-11-05", b""),
        ("GET", "/?Action=", b""),
        ("POST", "/", b""),
        ("POST", "/", b"Version=2012-11-05"),
        ("PUT", "/x", b"x"),
        ("HEAD", "/000000000000/q", b""),
    ],
)
async def test_a_request_without_an_action_is_an_unknown_operation(method: str, url: str, body: bytes) -> None:
    reply = await asked(door(), method, url, body)
    assert (reply.status, reply.body) == (404, b"<UnknownOperationException/>\n")


async def test_an_unknown_target_is_an_unknown_operation() -> None:
    reply = await by_json(door(), "FooBar")
    assert (reply.status, kind(reply)) == (404, "UnknownOperationException")
    reply = await asked(door(), "POST", "/", b"{}", content_type="application/x-amz-json-1.0")
    assert (reply.status, kind(reply)) == (404, "UnknownOperationException")


async def test_a_verb_that_is_not_here_is_unsupported() -> None:
    assert kind(await by_json(door(), "ListQueues")) == "UnsupportedOperation"


@pytest.mark.parametrize("body", [b"Action=%FF", b"Action=GetQueueUrl&QueueName=%FF", b"\xff=\xff"])
async def test_a_form_that_is_no_text_is_refused(body: bytes) -> None:
    reply = await asked(door(), "POST", "/", body, content_type=FORM.decode())
    assert reply.status == 400
    assert b"<Code>SerializationException</Code>" in reply.body


async def test_another_content_type_is_refused() -> None:
    reply = await asked(door(), "POST", "/", b"<xml/>", content_type="text/xml")
    assert reply.status == 400
    assert b"<Code>SerializationException</Code>" in reply.body


async def test_a_form_needs_no_content_type() -> None:
    reply = await asked(door(), "POST", "/", b"Action=GetQueueUrl&QueueName=q")
    assert b"<GetQueueUrlResult><QueueUrl>http://localhost:9324/</QueueUrl>" in reply.body


@pytest.mark.parametrize("error", [StateUnavailable(), StateFull(), NotUp()])
async def test_when_redis_is_away_or_full_the_client_is_told_to_try_again(error: Exception) -> None:
    reply = await by_json(door(GetQueueUrl=raising(error)), "GetQueueUrl", b'{"QueueName":"q"}')
    assert (reply.status, kind(reply)) == (503, "ServiceUnavailable")
    assert header(reply, "x-amzn-query-error") == "ServiceUnavailable;Receiver"


async def test_an_outage_of_redis_is_one_line_however_many_requests_meet_it(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        await by_json(door(GetQueueUrl=raising(StateUnavailable("it is away"))), "GetQueueUrl", b'{"QueueName":"q"}')
    outages = Outages()
    assert [outages.filter(record) for record in caplog.records] == [True, False]
    assert caplog.messages[0] == "requests are answered by 503: it is away"


async def test_any_other_error_is_ours_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "fleet.sqs"):
        reply = await asked(door(GetQueueUrl=raising(ValueError("secret"))), "GET", "/?Action=GetQueueUrl&QueueName=q")
    assert reply.status == 500
    assert b"<Type>Receiver</Type><Code>InternalFailure</Code>" in reply.body
    assert b"secret" not in reply.body
    assert header(reply, "x-amzn-requestid") in caplog.text


async def test_a_throttled_call_carries_its_headers() -> None:
    reply = await by_json(
        door(GetQueueUrl=raising(errors.throttling("q", "Send", 2))), "GetQueueUrl", b'{"QueueName":"q"}'
    )
    assert reply.body == b'{"__type":"Throttling","message":"Rate exceeded for queue \'q\' action \'Send\'"}'
    found = {name: header(reply, name) for name in ("x-amzn-errortype", "retry-after", "x-amz-retry-after")}
    assert found == {"x-amzn-errortype": "Throttling", "retry-after": "2", "x-amz-retry-after": "2000"}


# Who may ask ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["example.org", "10.0.0.1:9324", "", "local host"])
async def test_without_keys_only_a_host_of_this_machine_is_answered(host: str) -> None:
    reply = await by_json(door(), "GetQueueUrl", b'{"QueueName":"q"}', host=host)
    assert (reply.status, kind(reply)) == (403, "AccessDenied")


@pytest.mark.parametrize(
    "headers",
    [{"origin": "https://example.org"}, {"origin": "null"}, {"origin": ""}, {"sec_fetch_site": "cross-site"}],
)
async def test_without_keys_a_page_of_another_site_is_not_answered(headers: dict[str, str]) -> None:
    one = door(GetQueueUrl=raising(AssertionError()))
    assert (await asked(one, "GET", "/?Action=GetQueueUrl&QueueName=q", b"", **headers)).status == 403
    assert (await asked(one, "POST", "/", b"Action=GetQueueUrl&QueueName=q", **headers)).status == 403


async def test_a_page_of_this_machine_is_answered() -> None:
    headers = {"origin": "http://localhost:3000", "sec_fetch_site": "same-site"}
    assert (await asked(door(), "POST", "/", b"Action=GetQueueUrl&QueueName=q", **headers)).status == 200


async def test_with_keys_a_request_has_to_be_signed_and_any_host_will_do() -> None:
    one = Door({"GetQueueUrl": echo}, keys={"AKID": "secret"}, clock=StoppedClock())
    reply = await by_json(one, "GetQueueUrl", host="queue.example.org")
    assert (reply.status, kind(reply)) == (403, "MissingAuthenticationToken")
    assert (await by_json(one, "GetQueueUrl", host="a b")).status == 404
    assert (await asked(one, "GET", "/health")).status == 200


@pytest.mark.parametrize("url", ["/", "/health"])
async def test_a_probe_needs_no_verb(url: str) -> None:
    assert (await asked(door(), "GET", url)).body == b"ok\n"
    assert (await asked(door(), "HEAD", url)).body == b""
    assert (await asked(door(), "OPTIONS", url)).status == 204


def test_a_verb_that_sqs_has_not_is_a_mistake_of_ours() -> None:
    with pytest.raises(AssertionError, match="Nothing"):
        door(Nothing=echo)
