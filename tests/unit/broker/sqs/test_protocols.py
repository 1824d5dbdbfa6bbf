"""Both protocols against the real SDK: what it writes arrives whole, and what we write it reads whole."""

from __future__ import annotations

from typing import Any

import pytest

from fleet.broker.sqs import errors
from fleet.broker.sqs.call import Call, Protocol
from fleet.broker.sqs.shapes import VERBS
from tests.unit.broker.sqs.wire import ALL_VERBS, PROTOCOLS, QUEUE, asked, example, json_model, operation

both = pytest.mark.parametrize("protocol", PROTOCOLS)


def test_the_table_has_every_verb_of_the_sdk_with_all_it_takes_and_gives() -> None:
    model = json_model()
    assert sorted(model.operation_names) == ALL_VERBS
    for verb in ALL_VERBS:
        theirs = model.operation_model(verb)
        assert list(VERBS[verb].takes.members) == list(theirs.input_shape.members)
        gives = VERBS[verb].gives
        if theirs.output_shape is None:
            assert gives is None
        else:
            assert gives is not None
            assert set(gives.members) == set(theirs.output_shape.members)
        if not verb.endswith("Batch"):  # whose entries have an error of their own when they miss
            assert set(VERBS[verb].needs) == set(theirs.input_shape.required_members)


@both
@pytest.mark.parametrize("verb", ALL_VERBS)
async def test_every_parameter_arrives_as_the_sdk_was_given_it(protocol: Protocol, verb: str) -> None:
    params = example(operation(protocol, verb).input_shape)
    if "QueueUrl" in params:
        params["QueueUrl"] = QUEUE
    calls: list[Call] = []

    async def answer(call: Call) -> dict[str, Any] | None:
        calls.append(call)
        return {}

    await asked(protocol, verb, params, answer)
    assert calls[0].params == params
    assert calls[0].protocol == protocol
    assert calls[0].queue_name == ("q" if "QueueUrl" in params else "")
    assert calls[0].base_url == "http://localhost:9324"


@both
@pytest.mark.parametrize("verb", ALL_VERBS)
async def test_every_part_of_a_result_is_read_by_the_sdk(protocol: Protocol, verb: str) -> None:
    shape = operation(protocol, verb).output_shape
    result = None if shape is None else example(shape)

    async def answer(_: Call) -> dict[str, Any] | None:
        return result

    params = example(operation(protocol, verb).input_shape)
    found = await asked(protocol, verb, params | ({"QueueUrl": QUEUE} if "QueueUrl" in params else {}), answer)
    about = found.pop("ResponseMetadata")
    assert about["HTTPStatusCode"] == 200
    assert len(about["RequestId"]) == 36
    assert found == (result or {})


@both
async def test_an_empty_result_has_no_list(protocol: Protocol) -> None:
    async def answer(_: Call) -> dict[str, Any] | None:
        return {}

    found = await asked(protocol, "ReceiveMessage", {"QueueUrl": QUEUE}, answer)
    assert "Messages" not in found


@both
async def test_an_error_of_a_verb_has_both_of_its_names_for_the_sdk(protocol: Protocol) -> None:
    async def answer(_: Call) -> dict[str, Any] | None:
        raise errors.no_such_queue()

    found = await asked(protocol, "PurgeQueue", {"QueueUrl": QUEUE}, answer)
    error = found["Error"]
    assert error["Code"] == "AWS.SimpleQueueService.NonExistentQueue"
    assert found["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert error["Type"] == "Sender"
    if protocol == "json":
        assert error["QueryErrorCode"] == "QueueDoesNotExist"
        assert error["Message"] == "The specified queue does not exist."
    else:
        assert error["Message"] == "The specified queue does not exist for this wsdl version."


@both
async def test_a_throttled_call_says_when_to_come_again(protocol: Protocol) -> None:
    async def answer(_: Call) -> dict[str, Any] | None:
        raise errors.throttling("q", "Send", 9)

    found = await asked(protocol, "SendMessage", {"QueueUrl": QUEUE, "MessageBody": "x"}, answer)
    assert found["Error"]["Code"] == "Throttling"
    assert found["Error"]["Message"] == "Rate exceeded for queue 'q' action 'Send'"
    headers = found["ResponseMetadata"]["HTTPHeaders"]
    assert headers["x-amzn-errortype"] == "Throttling"
    assert headers["retry-after"] == "9"
    assert headers["x-amz-retry-after"] == "9000"
