"""What boto3 and SQS say went wrong, in Fleet's words."""

from __future__ import annotations

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError

from fleet.errors import SourceError, SourceUnavailable

_BUSY = frozenset(
    {
        "InternalError",
        "InternalFailure",
        "KmsThrottled",
        "OverLimit",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestTimeout",
        "ServiceUnavailable",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
_NO_QUEUE = frozenset({"NonExistentQueue", "QueueDoesNotExist"})
_NOT_ALLOWED = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidAccessKeyId",
        "InvalidClientTokenId",
        "InvalidSecurity",
        "KmsAccessDenied",
        "MissingAuthenticationToken",
        "NotAuthorized",
        "OptInRequired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)


class NotAllowed(SourceError):
    """The credentials are missing, or SQS does not accept them."""


class SqsRefused(SourceError):
    """SQS finds something wrong with what was asked, and would every time."""


def is_busy(code: str) -> bool:
    """Whether SQS failed for reasons of its own, so that the same may work later."""
    return _short(code) in _BUSY


def translated(error: Exception, queue: str) -> SourceError:
    """`queue` is its name as the user knows it."""
    if isinstance(error, boto.ClientError):
        return _answer(error, queue)
    if isinstance(error, boto.ConnectionError | boto.HTTPClientError | ResponseParserError):
        return SourceUnavailable(f"SQS queue {queue} cannot be reached: {error}")
    if isinstance(error, boto.CredentialRetrievalError | boto.MetadataRetrievalError):
        # They come from another server, which may be away for a while.
        return SourceUnavailable(f"SQS queue {queue}: {error}")
    if isinstance(error, boto.NoRegionError):
        return SourceError(f"SQS queue {queue}: no region is set; name it in the URI (sqs://REGION/NAME)")
    if isinstance(error, boto.BotoCoreError):
        return NotAllowed(f"SQS queue {queue}: {error}")
    # Something else answers there, a proxy perhaps, and boto3 stumbles over what it says.
    return SourceUnavailable(f"SQS queue {queue}: no answer from SQS ({type(error).__name__}: {error})"[:500])


def _answer(error: boto.ClientError, queue: str) -> SourceError:
    told = error.response.get("Error", {})
    code, text = _short(str(told.get("Code", ""))), str(told.get("Message", ""))[:300]
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    said = f"SQS queue {queue}: {code}: {text}"
    if code in _NO_QUEUE:
        return SourceError(f"there is no SQS queue {queue} (or it may not be seen): {code}")
    if code in _BUSY or status >= 500 or status == 429:
        return SourceUnavailable(said)
    if code in _NOT_ALLOWED or status in (401, 403):
        return NotAllowed(said)
    return SqsRefused(said)


def _short(code: str) -> str:
    """Without the older protocol's prefix: `AWS.SimpleQueueService.NonExistentQueue`."""
    return code.rpartition(".")[2]
