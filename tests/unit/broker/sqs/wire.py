"""What the real SDK writes and reads, without a network: its serialisers and parsers over its own model of SQS."""

from __future__ import annotations

from functools import cache
from typing import Any
from urllib.parse import urlencode

import botocore.session
from botocore import parsers, serialize
from botocore.model import OperationModel, ServiceModel, Shape

from fleet.broker.sqs.call import Call, Protocol
from fleet.broker.sqs.door import Door, Verb
from fleet.broker.sqs.shapes import VERBS, Structure
from fleet.broker.sqs.shapes import Shape as OurShape

HOST = "localhost:9324"
QUEUE = f"http://{HOST}/000000000000/q"


class StoppedClock:
    def __init__(self, wall_ms: int = 1_750_000_000_000) -> None:
        self.now_ms = wall_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def boot_ms(self) -> float:
        return float(self.now_ms)


@cache
def json_model() -> ServiceModel:
    return botocore.session.get_session().get_service_model("sqs")


@cache
def query_model() -> ServiceModel:
    return ServiceModel(query_description(), "sqs")


def query_description() -> dict[str, Any]:
    """SQS as it was before AWS JSON. The names that the Query protocol flattens to are AWS's, from its reference."""
    old = botocore.session.get_session().get_component("data_loader").load_service_model("sqs", "service-2")
    description = dict(old)
    description["metadata"] = {
        **old["metadata"],
        "protocol": "query",
        "protocols": ["query"],
        "xmlNamespace": "http://queue.amazonaws.com/doc/2012-11-05/",
    }
    shapes = {name: {**shape} for name, shape in old["shapes"].items()}
    for list_name, item in _ITEMS.items():
        shapes[list_name] = {
            **shapes[list_name],
            "flattened": True,
            "member": {**shapes[list_name]["member"], "locationName": item},
        }
    for map_name, (key, value) in _MAPS.items():
        shape = shapes[map_name]
        shapes[map_name] = {
            **shape,
            "flattened": True,
            "key": {**shape["key"], "locationName": key},
            "value": {**shape["value"], "locationName": value},
        }
    for name, shape in shapes.items():
        members = shape.get("members", {})
        for member, wire in _MEMBERS.items():
            if member in members and name != "TagQueueRequest":
                members = {**members, member: {**members[member], "locationName": wire}}
        if "members" in shape:
            shapes[name] = {**shape, "members": members}
    operations = {
        name: {**one, "output": {**one["output"], "resultWrapper": f"{name}Result"}} if "output" in one else one
        for name, one in old["operations"].items()
    }
    return {**description, "shapes": shapes, "operations": operations}


_ITEMS = {
    "AWSAccountIdList": "AWSAccountId",
    "ActionNameList": "ActionName",
    "AttributeNameList": "AttributeName",
    "BatchResultErrorEntryList": "BatchResultErrorEntry",
    "BinaryList": "BinaryListValue",
    "ChangeMessageVisibilityBatchRequestEntryList": "ChangeMessageVisibilityBatchRequestEntry",
    "ChangeMessageVisibilityBatchResultEntryList": "ChangeMessageVisibilityBatchResultEntry",
    "DeleteMessageBatchRequestEntryList": "DeleteMessageBatchRequestEntry",
    "DeleteMessageBatchResultEntryList": "DeleteMessageBatchResultEntry",
    "ListMessageMoveTasksResultEntryList": "ListMessageMoveTasksResultEntry",
    "MessageAttributeNameList": "MessageAttributeName",
    "MessageList": "Message",
    "MessageSystemAttributeList": "MessageSystemAttributeName",
    "QueueUrlList": "QueueUrl",
    "SendMessageBatchRequestEntryList": "SendMessageBatchRequestEntry",
    "SendMessageBatchResultEntryList": "SendMessageBatchResultEntry",
    "StringList": "StringListValue",
    "TagKeyList": "TagKey",
}
_MAPS = {
    "MessageBodyAttributeMap": ("Name", "Value"),
    "MessageBodySystemAttributeMap": ("Name", "Value"),
    "MessageSystemAttributeMap": ("Name", "Value"),
    "QueueAttributeMap": ("Name", "Value"),
    "TagMap": ("Key", "Value"),
}
_MEMBERS = {
    "Attributes": "Attribute",
    "MessageAttributes": "MessageAttribute",
    "MessageSystemAttributes": "MessageSystemAttribute",
    "tags": "Tag",
    "Tags": "Tag",
    "StringListValues": "StringListValue",
    "BinaryListValues": "BinaryListValue",
}


def model(protocol: Protocol) -> ServiceModel:
    return json_model() if protocol == "json" else query_model()


def operation(protocol: Protocol, verb: str) -> OperationModel:
    return model(protocol).operation_model(verb)


def sent(protocol: Protocol, verb: str, params: dict[str, Any]) -> tuple[dict[bytes, bytes], bytes]:
    """Headers and body of a request, as the SDK makes them."""
    serializer = serialize.create_serializer("json" if protocol == "json" else "query")
    request = serializer.serialize_to_request(params, operation(protocol, verb))
    body = request["body"]
    body = urlencode(body).encode() if isinstance(body, dict) else body
    headers = {name.lower().encode(): value.encode() for name, value in request["headers"].items()}
    headers[b"host"] = HOST.encode()
    return headers, body


def read(protocol: Protocol, verb: str, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> dict[str, Any]:
    """A response as the SDK hands it to its caller."""
    parser = parsers.create_parser("json" if protocol == "json" else "query")
    named = {name.decode(): value.decode() for name, value in headers}
    found: dict[str, Any] = parser.parse(
        {"status_code": status, "headers": named, "body": body}, operation(protocol, verb).output_shape
    )
    return found


async def asked(
    protocol: Protocol, verb: str, params: dict[str, Any], answer: Verb, *, keys: dict[str, str] | None = None
) -> dict[str, Any]:
    """The whole way: the SDK's request through a door with one verb, and its answer as the SDK reads it."""
    door = Door({verb: answer}, keys=keys or {}, clock=StoppedClock())
    headers, body = sent(protocol, verb, params)
    reply = await door.answer("POST", b"/", b"", headers, body)
    return read(protocol, verb, reply.status, reply.headers, reply.body)


def example(shape: Shape, name: str = "", depth: int = 0) -> Any:
    """A value with every member there is, made from the SDK's own model."""
    match shape.type_name:
        case "structure":
            return {member: example(one, member, depth + 1) for member, one in shape.members.items()}
        case "list":
            return [example(shape.member, name, depth + 1) for _ in range(3)]
        case "map":
            return {f"key {i}": example(shape.value, f"{name}{i}", depth + 1) for i in range(2)}
        case "integer" | "long":
            return 7 + depth
        case "boolean":
            return True
        case "blob":
            return bytes(range(256))
    return f"{name} \"<ü&\r\n\t𝄞>' {depth}"


def members(shape: OurShape) -> dict[str, Any]:
    assert isinstance(shape, Structure)
    return {name: member.shape for name, member in shape.members.items()}


def a_call(verb: str, **params: Any) -> Call:
    return Call(verb=verb, params=params)


PROTOCOLS: tuple[Protocol, ...] = ("json", "query")
ALL_VERBS = sorted(VERBS)
