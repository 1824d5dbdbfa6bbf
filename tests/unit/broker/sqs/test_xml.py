"""XML as AWS writes it."""

from __future__ import annotations

from xml.etree.ElementTree import fromstring

from fleet.broker.sqs import errors, xml

NAMESPACE = "{http://queue.amazonaws.com/doc/2012-11-05/}"


def test_a_result_is_wrapped_and_flattened() -> None:
    body = xml.encode("GetQueueAttributes", {"Attributes": {"A": "1", "B": "2"}}, "id-1")
    assert body == (
        b'<?xml version="1.0"?><GetQueueAttributesResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/">'
        b"<GetQueueAttributesResult><Attribute><Name>A</Name><Value>1</Value></Attribute>"
        b"<Attribute><Name>B</Name><Value>2</Value></Attribute></GetQueueAttributesResult>"
        b"<ResponseMetadata><RequestId>id-1</RequestId></ResponseMetadata></GetQueueAttributesResponse>"
    )


def test_a_verb_that_gives_nothing_has_no_result() -> None:
    body = xml.encode("DeleteQueue", None, "id-1")
    assert b"<DeleteQueueResponse " in body
    assert b"Result" not in body


def test_an_empty_receive_has_an_empty_result() -> None:
    assert b"<ReceiveMessageResult/>" in xml.encode("ReceiveMessage", {}, "id-1")


def test_an_error_says_whose_fault_it_is() -> None:
    assert xml.encode_error(errors.invalid_action("Foo<Bar"), "id-1") == (
        b'<?xml version="1.0"?><ErrorResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/"><Error>'
        b"<Type>Sender</Type><Code>InvalidAction</Code>"
        b"<Message>The action Foo&lt;Bar is not valid for this endpoint.</Message><Detail/></Error>"
        b"<RequestId>id-1</RequestId></ErrorResponse>"
    )
    assert b"<Type>Receiver</Type>" in xml.encode_error(errors.service_unavailable(), "id-1")


def test_what_xml_would_change_comes_back_as_it_was() -> None:
    body = "a\r\nb\tc <x> & ]]> \"'"
    root = fromstring(xml.encode("ReceiveMessage", {"Messages": [{"Body": body}]}, "id-1"))
    found = root.find(f".//{NAMESPACE}Body")
    assert found is not None
    assert found.text == body


def test_a_character_that_xml_has_not_does_not_break_the_answer() -> None:
    root = fromstring(xml.encode("ListQueueTags", {"Tags": {"k\x00\ufffe": "v\ud800"}}, "id-1"))
    assert [one.text for one in root.iter(f"{NAMESPACE}Key")] == ["k\ufffd\ufffd"]
    assert [one.text for one in root.iter(f"{NAMESPACE}Value")] == ["v\ufffd"]
