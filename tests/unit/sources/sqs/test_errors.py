"""Which errors of boto3 and SQS may be gone later, and which will not be."""

from __future__ import annotations

import pytest
from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from fleet.errors import SourceError, SourceUnavailable
from fleet.sources.sqs.errors import NotAllowed, SqsRefused, is_busy, translated


def answer(code: str, status: int = 400, text: str = "no") -> boto.ClientError:
    told = {"Error": {"Code": code, "Message": text}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return boto.ClientError(told, "ReceiveMessage")


@pytest.mark.parametrize(
    ("code", "status", "kind"),
    [
        ("AWS.SimpleQueueService.NonExistentQueue", 400, SourceError),
        ("QueueDoesNotExist", 403, SourceError),
        ("RequestThrottled", 403, SourceUnavailable),
        ("AWS.SimpleQueueService.OverLimit", 400, SourceUnavailable),
        ("Unknown", 500, SourceUnavailable),
        ("Unknown", 429, SourceUnavailable),
        ("ExpiredToken", 400, NotAllowed),
        ("Unknown", 401, NotAllowed),
        ("Unknown", 403, NotAllowed),
        ("InvalidAttributeValue", 400, SqsRefused),
    ],
)
def test_an_answer_is_judged_by_its_code_first_and_then_by_its_status(
    code: str, status: int, kind: type[SourceError]
) -> None:
    assert type(translated(answer(code, status), "q")) is kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (boto.EndpointConnectionError(endpoint_url="http://sqs"), SourceUnavailable),
        (boto.ReadTimeoutError(endpoint_url="http://sqs"), SourceUnavailable),
        (ResponseParserError("not XML"), SourceUnavailable),
        (boto.CredentialRetrievalError(provider="a server", error_msg="away"), SourceUnavailable),
        (boto.NoRegionError(), SourceError),
        (boto.NoCredentialsError(), NotAllowed),
        (KeyError("a proxy's page"), SourceUnavailable),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_without_an_answer_of_sqs_it_may_work_later_unless_something_has_to_be_set(
    error: Exception, kind: type[SourceError]
) -> None:
    found = translated(error, "q")
    assert type(found) is kind
    assert "SQS queue q" in str(found)


def test_what_is_said_is_short_and_names_the_code_without_the_older_protocols_prefix() -> None:
    said = str(translated(answer("AWS.SimpleQueueService.InvalidBatch", text="x" * 5000), "q"))
    assert said.startswith("SQS queue q: InvalidBatch: xxx") and len(said) < 400
    assert len(str(translated(ValueError("y" * 5000), "q"))) == 500


def test_an_answer_without_a_word_is_a_refusal() -> None:
    assert type(translated(boto.ClientError({}, "SendMessage"), "q")) is SqsRefused


def test_one_message_of_a_batch_may_meet_a_busy_queue_too() -> None:
    assert is_busy("AWS.SimpleQueueService.RequestThrottled") and is_busy("InternalError")
    assert not is_busy("InvalidMessageContents")
