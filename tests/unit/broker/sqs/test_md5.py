"""Digests, against those that AWS is recorded to answer and those that an SDK would compute."""

from __future__ import annotations

from typing import Any

from fleet.broker.sqs import md5


def test_of_a_body() -> None:
    assert md5.of_body(b"message-body-1") == "19c9e282d65f9733bc6b35d50062c7ee"


def test_of_attributes_as_aws_is_recorded() -> None:
    trace = b"traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c-2d2482211f6489da-01"
    binary = {"attr1": {"BinaryValue": trace, "DataType": "Binary"}}
    assert md5.of_attributes(binary) == "8cbe4db156db8a94db8b801b7addb984"
    text = {"MyAttribute": {"StringValue": "foobar", "DataType": "String"}}
    assert md5.of_attributes(text) == "adb59cd4678ea5a855436b949cd07ab6"


def test_of_attributes_of_every_type_sorted_by_name() -> None:
    given: dict[str, dict[str, Any]] = {
        "timestamp": {"StringValue": "1493147359900", "DataType": "Number"},
        "b.custom": {"BinaryValue": b"\x00\xff", "DataType": "Binary.png"},
        "a.custom": {"StringValue": "ü", "DataType": "String.text"},
    }
    assert md5.of_attributes(given) == md5.of_attributes(dict(reversed(given.items())))
    only = {"timestamp": given["timestamp"]}
    assert md5.of_attributes(only) == "235c5c510d26fb653d073faed50ae77c"


def test_of_none_there_is_no_digest() -> None:
    assert md5.of_attributes({}) == ""


def test_only_the_trace_header_is_in_the_digest_of_system_attributes() -> None:
    trace = {"StringValue": "Root=1", "DataType": "String"}
    alone = md5.of_system_attributes({"AWSTraceHeader": trace})
    assert alone == md5.of_attributes({"AWSTraceHeader": trace})
    assert md5.of_system_attributes({"AWSTraceHeader": trace, "Else": trace}) == alone
