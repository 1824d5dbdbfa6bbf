"""Every error the SQS door answers on purpose, one constructor each, with the texts that AWS is recorded to send.

An error has two names: its `code` in the Query protocol and in `x-amzn-query-error`, and its `type` in AWS JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from fleet.errors import FleetError
from fleet.words import number

Fault = Literal["Sender", "Receiver"]

_SHOWN = 1024
"""Of a value that a caller sent, as much goes back in the text: a hostile one is not echoed by the megabyte."""


class SqsError(FleetError):
    """The call was refused."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        type: str = "",  # noqa: A002, its name in AWS JSON
        query_message: str = "",
        status: int = 400,
        fault: Fault = "Sender",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.type = type or code
        self.message = message
        self.query_message = query_message or message
        self.status = status
        self.fault: Fault = fault
        self.headers: Mapping[str, str] = headers or {}

    def entry(self, id: str) -> dict[str, Any]:  # noqa: A002, its name in AWS JSON
        """As one of the `Failed` of a batch."""
        return {"Id": id, "SenderFault": self.fault == "Sender", "Code": self.code, "Message": self.message}


def _ours(name: str, message: str, *, code: str = "", status: int = 400, query_message: str = "") -> SqsError:
    """An error whose Query code carries the prefix of the service."""
    code = f"AWS.SimpleQueueService.{code or name}"
    return SqsError(code, message, type=name, status=status, query_message=query_message)


# Parameters ----------------------------------------------------------------------------------------


def invalid_parameter(message: str) -> SqsError:
    return SqsError("InvalidParameterValue", message, type="InvalidParameterValueException")


def invalid_value(value: object, parameter: str, reason: str) -> SqsError:
    return invalid_parameter(f"Value {_short(value)} for parameter {parameter} is invalid. Reason: {reason}")


def not_for_this_type(value: object, parameter: str) -> SqsError:
    reason = "The request include parameter that is not valid for this queue type."
    return invalid_value(value, parameter, reason)


def missing_parameter(parameter: str) -> SqsError:
    message = f"The request must contain the parameter {parameter}."
    return SqsError("MissingParameter", message, type="MissingRequiredParameterException")


def unsupported(message: str) -> SqsError:
    return _ours("UnsupportedOperation", message)


def invalid_message_contents() -> SqsError:
    allowed = "#x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF"
    return SqsError("InvalidMessageContents", f"Invalid characters found. Valid unicode characters are {allowed}")


# Queues --------------------------------------------------------------------------------------------


def no_such_queue() -> SqsError:
    message = "The specified queue does not exist"
    in_query = f"{message} for this wsdl version."
    return _ours("QueueDoesNotExist", f"{message}.", code="NonExistentQueue", query_message=in_query)


def queue_name_exists(attribute: str) -> SqsError:
    message = f"A queue already exists with the same name and a different value for attribute {attribute}"
    return SqsError("QueueAlreadyExists", message, type="QueueNameExists")


def queue_deleted_recently() -> SqsError:
    message = "You must wait 60 seconds after deleting a queue before you can create another with the same name."
    return _ours("QueueDeletedRecently", message)


def purge_in_progress(queue: str, every_s: int = 60) -> SqsError:
    message = f"Only one PurgeQueue operation on {queue} is allowed every {every_s} seconds."
    return _ours("PurgeQueueInProgress", message, status=403)


def unknown_attribute(name: str) -> SqsError:
    return SqsError("InvalidAttributeName", f"Unknown Attribute {_short(name)}.")


def only_for_fifo(name: str) -> SqsError:
    message = f"You can specify the {name} only when FifoQueue is set to true."
    return SqsError("InvalidAttributeName", message)


def invalid_attribute_value(name: str, reason: str = "") -> SqsError:
    message = f"Invalid value for the parameter {name}."
    return SqsError("InvalidAttributeValue", f"{message} Reason: {reason}" if reason else message)


def two_kinds_of_encryption() -> SqsError:
    message = (
        "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS SSE."
    )
    return SqsError("InvalidAttributeValue", message)


def over_limit(message: str) -> SqsError:
    return SqsError("OverLimit", message, status=403)


def too_many_in_flight(queue: str, limit: int = 120_000) -> SqsError:
    return over_limit(f"The queue {queue} has reached its limit: {number(limit, 'message')} in flight.")


# Receipt handles -----------------------------------------------------------------------------------


def invalid_receipt_handle(handle: str) -> SqsError:
    message = f'The input receipt handle "{_short(handle)}" is not a valid receipt handle.'
    return SqsError("ReceiptHandleIsInvalid", message)


def receipt_handle_expired(handle: str) -> SqsError:
    return invalid_value(handle, "ReceiptHandle", "The receipt handle has expired.")


def message_not_available(handle: str) -> SqsError:
    reason = "Message does not exist or is not available for visibility timeout change."
    return invalid_value(handle, "ReceiptHandle", reason)


def message_not_in_flight() -> SqsError:
    return _ours("MessageNotInflight", "The specified message isn't in flight.")


def visibility_beyond_limit(seconds: int) -> SqsError:
    reason = "Total VisibilityTimeout for the message is beyond the limit [43200 seconds]"
    return invalid_value(seconds, "VisibilityTimeout", reason)


# Batches -------------------------------------------------------------------------------------------


def empty_batch(entry: str) -> SqsError:
    return _ours("EmptyBatchRequest", f"There should be at least one {entry} in the request.")


def too_many_entries(count: int) -> SqsError:
    message = f"Maximum number of entries per request are 10. You have sent {count}."
    return _ours("TooManyEntriesInBatchRequest", message)


def invalid_batch_id() -> SqsError:
    message = "A batch entry id can only contain alphanumeric characters, hyphens and underscores."
    return _ours("InvalidBatchEntryId", f"{message} It can be at most 80 letters long.")


def batch_id_repeated(id: str) -> SqsError:  # noqa: A002, its name in AWS JSON
    return _ours("BatchEntryIdsNotDistinct", f"Id {id} repeated.")


def batch_too_long(sent_bytes: int, limit_bytes: int) -> SqsError:
    message = f"Batch requests cannot be longer than {limit_bytes} bytes. You have sent {sent_bytes} bytes."
    return _ours("BatchRequestTooLong", message)


# Move tasks and permissions ------------------------------------------------------------------------


def resource_not_found(message: str) -> SqsError:
    return SqsError("ResourceNotFoundException", message, status=404)


def no_such_resource(parameter: str) -> SqsError:
    return resource_not_found(f"The resource that you specified for the {parameter} parameter doesn't exist.")


def invalid_arn(parameter: str) -> SqsError:
    form = "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
    return invalid_parameter(f"You must use this format to specify the {parameter}: {form}")


def not_a_dead_letter_queue() -> SqsError:
    return invalid_parameter("Source queue must be configured as a Dead Letter Queue.")


def move_task_running() -> SqsError:
    message = "There is already a task running."
    return invalid_parameter(f"{message} Only one active task is allowed for a source queue arn at a given time.")


def invalid_task_handle() -> SqsError:
    return invalid_parameter("Value for parameter TaskHandle is invalid.")


def no_such_task() -> SqsError:
    return resource_not_found("Task does not exist.")


def label_exists(label: str) -> SqsError:
    return invalid_value(label, "Label", "Already exists.")


def no_such_label(label: str) -> SqsError:
    return invalid_value(label, "Label", "can't find label.")


def invalid_permission_action(action: str) -> SqsError:
    reason = "Please refer to the appropriate WSDL for a list of valid actions."
    return invalid_value(f"SQS:{_short(action)}", "ActionName", reason)


# The request itself --------------------------------------------------------------------------------


def serialization(message: str) -> SqsError:
    return SqsError("SerializationException", message)


def invalid_action(action: str) -> SqsError:
    return SqsError("InvalidAction", f"The action {_short(action)} is not valid for this endpoint.")


def unknown_operation() -> SqsError:
    return SqsError("UnknownOperationException", "The requested operation is not known.", status=404)


def invalid_address(address: str) -> SqsError:
    return SqsError("InvalidAddress", f"The address {_short(address)} is not valid for this endpoint.", status=404)


def access_denied(message: str) -> SqsError:
    return SqsError("AccessDenied", message, status=403)


def too_large(limit_bytes: int) -> SqsError:
    return SqsError("RequestEntityTooLarge", f"A request is at most {limit_bytes} bytes long.", status=413)


def head_too_large(limit_bytes: int) -> SqsError:
    text = f"The head of a request is at most {limit_bytes} bytes long."
    return SqsError("RequestHeadersTooLarge", text, status=431)


def throttling(queue: str, action: str, retry_after_s: int) -> SqsError:
    return SqsError(
        "Throttling",
        f"Rate exceeded for queue '{queue}' action '{action}'",
        headers={
            "x-amzn-ErrorType": "Throttling",
            "Retry-After": str(retry_after_s),
            "x-amz-retry-after": str(retry_after_s * 1000),
        },
    )


def service_unavailable() -> SqsError:
    message = "The request has failed due to a temporary failure of the server."
    return SqsError("ServiceUnavailable", message, status=503, fault="Receiver")


def internal_failure() -> SqsError:
    message = "The request processing has failed because of an unknown error, exception or failure."
    return SqsError("InternalFailure", message, status=500, fault="Receiver")


# Signatures ----------------------------------------------------------------------------------------


def no_authentication() -> SqsError:
    message = "The request must contain either a valid (registered) AWS access key ID or X.509 certificate."
    return SqsError("MissingAuthenticationToken", message, status=403)


def incomplete_signature(message: str) -> SqsError:
    return SqsError("IncompleteSignature", message)


def invalid_client_token() -> SqsError:
    message = "The security token included in the request is invalid."
    return SqsError("InvalidClientTokenId", message, status=403)


def signature_does_not_match(message: str = "") -> SqsError:
    told = (
        "The request signature we calculated does not match the signature you provided."
        " Check your AWS Secret Access Key and signing method."
    )
    return SqsError("SignatureDoesNotMatch", message or told, status=403)


def request_expired(message: str) -> SqsError:
    return SqsError("RequestExpired", message)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
