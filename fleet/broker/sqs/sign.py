"""Signature version 4: who sent a request, by its Authorization header or by the query of a presigned URL."""

from __future__ import annotations

import hmac
import re
from calendar import timegm
from collections.abc import Mapping
from hashlib import sha256
from time import strptime
from typing import TypeVar
from urllib.parse import quote_from_bytes, unquote_to_bytes

import msgspec

from fleet.broker.sqs import errors
from fleet.errors import InvalidConfig

ALGORITHM = b"AWS4-HMAC-SHA256"
SKEW_S = 15 * 60
LONGEST_S = 7 * 24 * 3600
"""A presigned URL is good for at most this long."""
_MOST_KEPT = 1024
"""Of what is remembered: a caller chooses region and day, and must not choose how much memory we need."""
_LONGEST_PREFIX = 1024
_HEADER = re.compile(
    rb"AWS4-HMAC-SHA256\s+Credential=([^,\s]+)\s*,\s*SignedHeaders=([^,\s]+)\s*,\s*Signature=([0-9a-f]{64})\s*\Z"
)
_DATE = re.compile(rb"[0-9]{8}T[0-9]{6}Z\Z")
_KEY = re.compile(r"[A-Za-z0-9_.-]{3,128}\Z")
_BLANKS = re.compile(rb"\s+")
_IS_ESCAPED = re.compile(rb"(?:[A-Za-z0-9_.~-]|%(?!2[DE]|3[0-9]|4[1-9A-F]|5[0-9AF]|6[1-9A-F]|7[0-9AE])[0-9A-F]{2})*\Z")
"""Everything escaped that has to be, and nothing else: no need to do it again."""
_ALWAYS_SIGNED = (b"host", b"x-amz-target")
K = TypeVar("K")
V = TypeVar("V")


def parse_keys(text: str) -> dict[str, str]:
    """`ID:SECRET,ID:SECRET`: the secrets by id; empty for no text. InvalidConfig names no secret."""
    keys: dict[str, str] = {}
    for number, pair in enumerate((one.strip() for one in text.split(",") if one.strip()), 1):
        key, colon, secret = pair.partition(":")
        if not colon or not secret or _KEY.match(key) is None:
            rule = "an ID has 3 to 128 letters, digits and . - _"
            raise InvalidConfig(f"FLEET_SQS_ACCESS_KEYS: key {number} is not written ID:SECRET ({rule})")
        if key in keys:
            raise InvalidConfig(f"FLEET_SQS_ACCESS_KEYS: {key} is there twice")
        keys[key] = secret
    return keys


class _Claim(msgspec.Struct, frozen=True):
    """Who a request says it is from, and what of it is signed: the same words with each request of a day."""

    signing_key: bytes
    scope: bytes
    headers: tuple[bytes, ...]
    signed: bytes
    """The same names, in one."""


class Signatures:
    """Checks requests against a set of keys. Without keys nobody has to sign."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        self._keys = dict(keys)
        self._claims: dict[tuple[bytes, bytes], _Claim] = {}
        self._prefixes: dict[bytes, _Claim] = {}
        self._times: dict[bytes, int] = {}

    def __bool__(self) -> bool:
        return bool(self._keys)

    def check(
        self, method: str, path: bytes, query: bytes, headers: Mapping[bytes, bytes], body: bytes, *, now_s: float
    ) -> None:
        """SqsError unless one of our keys signed this. `path` and `query` as they came, still escaped."""
        authorization = headers.get(b"authorization")
        if authorization is not None:
            date = headers.get(b"x-amz-date", b"")
            claim, signature = self._of_header(authorization)
            if abs(now_s - self._time(date)) > SKEW_S:
                raise errors.request_expired(_expired(date))
            pairs = _canonical_query(query) if query else b""
        elif b"X-Amz-Signature=" in query or b"X-Amz-Algorithm=" in query:
            claim, signature, date = self._of_query(query, now_s)
            pairs = _canonical_query(query, without=b"X-Amz-Signature")
        else:
            raise errors.no_authentication()
        if not claim.scope.startswith(date[:8]):
            raise errors.signature_does_not_match("Date in Credential scope does not match YYYYMMDD from ISO-8601.")
        request = b"\n".join(
            [
                method.encode(),
                b"/" if path == b"/" else _canonical_path(path),
                pairs,
                _canonical_headers(claim.headers, headers),
                claim.signed,
                sha256(body).hexdigest().encode(),
            ]
        )
        digest = sha256(request).hexdigest().encode()
        to_sign = b"AWS4-HMAC-SHA256\n%b\n%b\n%b" % (date, claim.scope, digest)
        ours = hmac.digest(claim.signing_key, to_sign, "sha256").hex().encode()
        if not hmac.compare_digest(ours, signature):
            raise errors.signature_does_not_match()

    def _of_header(self, authorization: bytes) -> tuple[_Claim, bytes]:
        prefix, _, signature = authorization.rpartition(b"Signature=")
        claim = self._prefixes.get(prefix)
        if claim is None:
            found = _HEADER.match(authorization)
            if found is None:
                raise errors.incomplete_signature(_what_is_missing(authorization))
            credential, signed, signature = found.groups()
            claim = self._claim(credential, signed)
            # Only what names one of our keys is remembered, and only the form that is split as above.
            if len(prefix) <= _LONGEST_PREFIX and found.start(3) == len(prefix) + len(b"Signature="):
                _keep(self._prefixes, prefix, claim)
        return claim, signature.rstrip()

    def _of_query(self, query: bytes, now_s: float) -> tuple[_Claim, bytes, bytes]:
        given = _fields(query)
        for name in (b"Algorithm", b"Credential", b"SignedHeaders", b"Signature", b"Date", b"Expires"):
            if not given.get(b"X-Amz-" + name):
                raise errors.incomplete_signature(f"AWS query-string parameters must include 'X-Amz-{name.decode()}'.")
        if given[b"X-Amz-Algorithm"] != ALGORITHM:
            raise errors.incomplete_signature(f"X-Amz-Algorithm must be {ALGORITHM.decode()}.")
        date, lasts = given[b"X-Amz-Date"], given[b"X-Amz-Expires"]
        if not (lasts.isdigit() and len(lasts) <= 6 and 1 <= int(lasts) <= LONGEST_S):
            raise errors.incomplete_signature(f"X-Amz-Expires must be between 1 and {LONGEST_S} seconds.")
        sent_s = self._time(date)
        if now_s > sent_s + int(lasts) or now_s < sent_s - SKEW_S:
            raise errors.request_expired(_expired(date))
        claim = self._claim(given[b"X-Amz-Credential"], given[b"X-Amz-SignedHeaders"])
        return claim, given[b"X-Amz-Signature"], date

    def _claim(self, credential: bytes, signed: bytes) -> _Claim:
        found = self._claims.get((credential, signed))
        if found is None:
            key, _, scope = credential.partition(b"/")
            secret = self._keys.get(key.decode("latin-1"))
            if secret is None:
                raise errors.invalid_client_token()
            found = _Claim(_derived(secret, scope), scope, tuple(signed.split(b";")), signed)
            if len(credential) + len(signed) <= _LONGEST_PREFIX:
                _keep(self._claims, (credential, signed), found)
        return found

    def _time(self, date: bytes) -> int:
        """Seconds since 1970. Remembered, for many requests are of the same second."""
        found = self._times.get(date)
        if found is None:
            if _DATE.match(date) is None:
                raise errors.incomplete_signature("A signed request needs an 'X-Amz-Date', like 20300101T000000Z.")
            try:
                found = timegm(strptime(date.decode(), "%Y%m%dT%H%M%SZ"))
            except ValueError as error:
                raise errors.incomplete_signature(f"'{date.decode()}' is not a date.") from error
            _keep(self._times, date, found)
        return found


def _derived(secret: str, scope: bytes) -> bytes:
    """The key of a day, a region and this service."""
    parts = scope.split(b"/")
    if len(parts) != 4 or not all(parts) or parts[2:] != [b"sqs", b"aws4_request"]:
        raise errors.signature_does_not_match(
            "Credential must have 5 slash-delimited elements, e.g. keyid/date/region/sqs/aws4_request."
        )
    found = b"AWS4" + secret.encode()
    for part in parts:
        found = hmac.digest(found, part, "sha256")
    return found


def _keep(known: dict[K, V], key: K, value: V) -> None:
    if len(known) >= _MOST_KEPT:
        known.clear()
    known[key] = value


def _what_is_missing(authorization: bytes) -> str:
    if not authorization.startswith(ALGORITHM):
        return f"The Authorization header must begin with {ALGORITHM.decode()}."
    missing = [
        name for name in ("Credential", "Signature", "SignedHeaders") if f"{name}=".encode() not in authorization
    ]
    if missing:
        return " ".join(f"Authorization header requires '{name}' parameter." for name in missing)
    return "The Authorization header is not written as Signature Version 4 has it."


def _expired(date: bytes) -> str:
    return (
        f"Signature expired: {date.decode()} is not within 15 minutes of now, or its URL was good for a shorter time."
    )


def _fields(query: bytes) -> dict[bytes, bytes]:
    pairs = (one.partition(b"=") for one in query.split(b"&"))
    return {unquote_to_bytes(name): unquote_to_bytes(value) for name, _, value in pairs if name.startswith(b"X-Amz-")}


# The canonical request: what client and server both make out of one, in the same words. ---------------


def _canonical_path(path: bytes) -> bytes:
    """Without empty and dotted segments, escaped once more than it came."""
    kept: list[bytes] = []
    for segment in path.split(b"/"):
        if segment == b"..":
            del kept[-1:]
        elif segment not in (b"", b"."):
            kept.append(segment)
    end = b"/" if kept and path.endswith(b"/") else b""
    return quote_from_bytes(b"/" + b"/".join(kept) + end, safe="/~").encode()


def _canonical_query(query: bytes, *, without: bytes = b"") -> bytes:
    """Sorted, each name and value escaped in the one way that signatures know."""
    pairs = []
    for one in query.split(b"&"):
        name, _, value = one.partition(b"=")
        if one and name != without:
            pairs.append((_escaped(name), _escaped(value)))
    pairs.sort()
    return b"&".join([b"%b=%b" % pair for pair in pairs])


def _escaped(raw: bytes) -> bytes:
    if _IS_ESCAPED.match(raw):
        return raw
    return quote_from_bytes(unquote_to_bytes(raw), safe="-_.~").encode()


def _canonical_headers(names: tuple[bytes, ...], headers: Mapping[bytes, bytes]) -> bytes:
    """A line each, as `names` has them; SqsError where one is missing, or one is unsigned that must not be."""
    for name in _ALWAYS_SIGNED:
        # What is not signed, somebody on the way may have changed: the server it was meant for, or the verb.
        if name not in names and (name == b"host" or name in headers):
            raise errors.signature_does_not_match(
                f"'{name.decode()}' must be a 'SignedHeader' in the AWS Authorization header."
            )
    lines = bytearray()
    for name in names:
        value = headers.get(name)
        if value is None:
            shown = name[:64].decode("latin-1")
            raise errors.signature_does_not_match(f"The signed header '{shown}' is not in the request.")
        if b"  " in value or b"\t" in value:
            value = _BLANKS.sub(b" ", value)
        lines += b"%b:%b\n" % (name, value.strip())
    return bytes(lines)
