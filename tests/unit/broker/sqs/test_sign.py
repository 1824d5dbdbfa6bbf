"""Signatures against those of the real SDK: what it signs is let in, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from fleet.broker.sqs import sign
from fleet.broker.sqs.errors import SqsError
from fleet.broker.sqs.sign import Signatures, parse_keys
from fleet.errors import InvalidConfig

KEYS = {"AKIDEXAMPLE": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"}
Request = dict[str, Any]


def seconds() -> float:
    return datetime.now(UTC).timestamp()


def taken(prepared: Any, body: bytes) -> Request:
    """As a server sees it."""
    parts = urlsplit(prepared.url)
    headers = {name.lower().encode(): str(value).encode("latin-1") for name, value in prepared.headers.items()}
    headers.setdefault(b"host", parts.netloc.encode())
    return {
        "method": prepared.method,
        "path": parts.path.encode() or b"/",
        "query": parts.query.encode(),
        "headers": headers,
        "body": body,
    }


def signed(
    url: str = "http://localhost:9324/",
    *,
    method: str = "POST",
    body: bytes = b'{"QueueUrl":"u"}',
    headers: dict[str, str] | None = None,
    service: str = "sqs",
    region: str = "eu-west-1",
    key: str = "AKIDEXAMPLE",
    secret: str = KEYS["AKIDEXAMPLE"],
) -> Request:
    request = AWSRequest(method=method, url=url, data=body, headers=headers or {})
    SigV4Auth(Credentials(key, secret), service, region).add_auth(request)
    return taken(request.prepare(), body)


def presigned(url: str, *, lasts_s: int = 60, method: str = "GET", params: dict[str, str] | None = None) -> Request:
    request = AWSRequest(method=method, url=url, params=params or {})
    SigV4QueryAuth(Credentials("AKIDEXAMPLE", KEYS["AKIDEXAMPLE"]), "sqs", "eu-west-1", expires=lasts_s).add_auth(
        request
    )
    return taken(request.prepare(), b"")


def check(request: Request, *, later_s: float = 0, keys: dict[str, str] | None = None) -> None:
    Signatures(KEYS if keys is None else keys).check(**request, now_s=seconds() + later_s)


def refused(request: Request, *, later_s: float = 0) -> SqsError:
    with pytest.raises(SqsError) as found:
        check(request, later_s=later_s)
    return found.value


PATHS = ["/", "", "/000000000000/q", "/a//b/./c/../d/", "/a%20b/%C3%BC", "/a+b/~x/*'()", "/a%2Fb", "/..", "/a:b@c"]


@pytest.mark.parametrize("path", PATHS)
def test_what_the_sdk_signs_in_headers_is_let_in(path: str) -> None:
    check(signed(f"http://localhost:9324{path}"))


@pytest.mark.parametrize("path", PATHS)
def test_what_the_sdk_presigns_is_let_in(path: str) -> None:
    params = {"Action": "DeleteMessage", "ReceiptHandle": "a+b/c=d é&*~", "Version": "2012-11-05", "a": ""}
    check(presigned(f"http://localhost:9324{path}", params=params))


@pytest.mark.parametrize(
    "query", ["b=2&a=1&a=0", "a", "a=", "A=1&a=2&%C3%BC=%20", "x=%2B%2f".upper().replace("X", "x")]
)
def test_a_query_is_part_of_what_is_signed(query: str) -> None:
    request = signed(f"http://localhost:9324/q?{query}", method="GET", body=b"")
    check(request)
    assert refused({**request, "query": request["query"] + b"&z=1"}).code == "SignatureDoesNotMatch"


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Amz-Target": "AmazonSQS.SendMessage", "Content-Type": "application/x-amz-json-1.0"},
        {"X-Custom": "  a   b  \t c "},
        {"X-Amz-Security-Token": "token/+="},
        {"Host": "queue.example.org:8080"},
    ],
)
def test_headers_are_part_of_what_is_signed(headers: dict[str, str]) -> None:
    request = signed(headers=headers)
    check(request)
    name = next(iter(headers)).lower().encode()
    changed = {**request["headers"], name: b"other"}
    assert refused({**request, "headers": changed}).code == "SignatureDoesNotMatch"


def test_a_body_is_part_of_what_is_signed() -> None:
    assert refused({**signed(), "body": b"{}"}).code == "SignatureDoesNotMatch"
    assert refused({**presigned("http://localhost/q"), "body": b"x"}).code == "SignatureDoesNotMatch"


@pytest.mark.parametrize(("name", "other"), [("method", "GET"), ("path", b"/other")])
def test_verb_and_path_are_part_of_what_is_signed(name: str, other: object) -> None:
    assert refused({**signed(), name: other}).code == "SignatureDoesNotMatch"


def test_a_target_that_is_not_signed_is_refused() -> None:
    request = signed()
    request["headers"][b"x-amz-target"] = b"AmazonSQS.PurgeQueue"
    assert refused(request).code == "SignatureDoesNotMatch"


@pytest.mark.parametrize(
    ("other", "code", "status"),
    [
        ({"key": "AKIDOTHER"}, "InvalidClientTokenId", 403),
        ({"secret": "other"}, "SignatureDoesNotMatch", 403),
        ({"service": "sns"}, "SignatureDoesNotMatch", 403),
    ],
)
def test_another_key_secret_or_service_is_refused(other: dict[str, str], code: str, status: int) -> None:
    error = refused(signed(**other))  # type: ignore[arg-type]
    assert (error.code, error.status) == (code, status)


@pytest.mark.parametrize("region", ["us-east-1", "elasticmq", "x"])
def test_any_region_will_do(region: str) -> None:
    check(signed(region=region))


@pytest.mark.parametrize("later_s", [-890, 890])
def test_a_clock_may_be_a_quarter_of_an_hour_off(later_s: float) -> None:
    check(signed(), later_s=later_s)


@pytest.mark.parametrize("later_s", [-910, 910, 1e9])
def test_a_signature_of_another_time_has_expired(later_s: float) -> None:
    error = refused(signed(), later_s=later_s)
    assert (error.code, error.status) == ("RequestExpired", 400)


def test_a_presigned_url_is_good_for_as_long_as_it_says() -> None:
    request = presigned("http://localhost/q", lasts_s=3600)
    check(request, later_s=3590)
    assert refused(request, later_s=3610).code == "RequestExpired"
    assert refused(request, later_s=-910).code == "RequestExpired"


@pytest.mark.parametrize("lasts_s", [0, -1, 604_801])
def test_a_presigned_url_is_not_good_for_ever(lasts_s: int) -> None:
    assert refused(presigned("http://localhost/q", lasts_s=lasts_s)).code == "IncompleteSignature"


@pytest.mark.parametrize("name", ["Algorithm", "Credential", "SignedHeaders", "Date", "Expires"])
def test_a_presigned_url_has_all_of_its_parts(name: str) -> None:
    request = presigned("http://localhost/q")
    kept = [pair for pair in request["query"].split(b"&") if not pair.startswith(f"X-Amz-{name}=".encode())]
    error = refused({**request, "query": b"&".join(kept)})
    assert (error.code, error.status) == ("IncompleteSignature", 400)
    assert f"X-Amz-{name}" in error.message


def with_header(name: bytes, change: Callable[[bytes], bytes | None]) -> Request:
    request = signed()
    value = change(request["headers"].pop(name))
    if value is not None:
        request["headers"][name] = value
    return request


def test_a_request_without_any_signature_is_told_so() -> None:
    error = refused(with_header(b"authorization", lambda _: None))
    assert (error.code, error.status) == ("MissingAuthenticationToken", 403)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"Basic abc",
        b"AWS4-HMAC-SHA256",
        b"AWS4-HMAC-SHA256 Credential=a/b/c/sqs/aws4_request",
        b"AWS4-HMAC-SHA256 Credential=a, SignedHeaders=host, Signature=short",
        b"AWS4-HMAC-SHA512 Credential=a, SignedHeaders=host, Signature=" + b"0" * 64,
        b"AWS4-HMAC-SHA256 Credential=\xff, SignedHeaders=\xff, Signature=\xff",
        b"A" * 100_000,
    ],
    ids=lambda text: text[:60],
)
def test_half_a_signature_is_incomplete(text: bytes) -> None:
    error = refused(with_header(b"authorization", lambda _: text))
    assert (error.code, error.status) == ("IncompleteSignature", 400)


@pytest.mark.parametrize("date", [None, b"", b"yesterday", b"20251332T000000Z", b"20250101T000000", b"\xff"])
def test_a_date_that_is_none_is_incomplete(date: bytes | None) -> None:
    assert refused(with_header(b"x-amz-date", lambda _: date)).code == "IncompleteSignature"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"host;", b""),
        (b"SignedHeaders=host", b"SignedHeaders=host;nothing"),
        (b"/sqs/", b"/sqs/x/"),
        (b"/aws4_request", b""),
        (b"/eu-west-1/", b"//"),
        (b"SignedHeaders=host;x-amz-date", b"SignedHeaders=;"),
    ],
)
def test_a_scope_or_a_list_of_headers_that_is_wrong_does_not_match(old: bytes, new: bytes) -> None:
    request = with_header(b"authorization", lambda value: value.replace(old, new))
    assert refused(request).code == "SignatureDoesNotMatch"


def test_a_scope_of_another_day_does_not_match() -> None:
    request = with_header(b"authorization", lambda value: value.replace(b"AKIDEXAMPLE/20", b"AKIDEXAMPLE/19"))
    assert refused(request).code == "SignatureDoesNotMatch"


def test_derived_keys_and_dates_do_not_pile_up() -> None:
    signatures = Signatures(KEYS)
    request = signed()
    authorization = request["headers"][b"authorization"]
    for i in range(3000):
        request["headers"][b"authorization"] = authorization.replace(b"eu-west-1", b"r%d" % i)
        with pytest.raises(SqsError):
            signatures.check(**request, now_s=seconds())
    assert len(signatures._claims) <= 1024
    assert len(signatures._prefixes) <= 1024
    request["headers"][b"authorization"] = authorization
    signatures.check(**request, now_s=seconds())


# FLEET_SQS_ACCESS_KEYS -----------------------------------------------------------------------------


def test_keys_are_pairs() -> None:
    assert parse_keys("") == {}
    assert parse_keys(" AKID1:se:cret+/=, AKID2:b ,") == {"AKID1": "se:cret+/=", "AKID2": "b"}


@pytest.mark.parametrize("text", ["AKID", "AKID:", ":secret", "a b:secret", "AKID1:top,AKID1:top", "ü12:secret"])
def test_keys_that_are_no_pairs_are_refused_without_naming_a_secret(text: str) -> None:
    with pytest.raises(InvalidConfig) as found:
        parse_keys(text)
    assert "FLEET_SQS_ACCESS_KEYS" in str(found.value)
    assert "secret" not in str(found.value)
    assert "top" not in str(found.value)


def test_without_keys_there_is_nothing_to_check() -> None:
    assert not Signatures({})
    assert Signatures(KEYS)
    assert sign.SKEW_S == 900
