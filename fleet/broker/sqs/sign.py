"""Signature version 4: who sent a request, by its Authorization header or by the query of a presigned URL."""

from __future__ import annotations

import hmac
import re
from calendar import timegm
from collections.abc import Mapping
from hashlib import sha256
from time import strptime
from urllib.parse import quote, quote_from_bytes, unquote_to_bytes

from fleet.broker.sqs import errors
from fleet.errors import InvalidConfig

ALGORITHM = "AWS4-HMAC-SHA256"
SKEW_S = 15 * 60
LONGEST_S = 7 * 24 * 3600
"""A presigned URL is good for at most this long."""
_MOST_KEPT = 1024
"""Derived keys: a caller chooses region and day, and must not choose how much memory we need."""
_HEADER = re.compile(
    r"AWS4-HMAC-SHA256\s+Credential=([^,\s]+)\s*,\s*SignedHeaders=([^,\s]+)\s*,\s*Signature=([0-9a-f]{64})\s*\Z"
)
_DATE = re.compile(r"[0-9]{8}T[0-9]{6}Z\Z")
_KEY = re.compile(r"[A-Za-z0-9_.-]{3,128}\Z")
_BLANKS = re.compile(rb"\s+")
_UNRESERVED = "-_.~"
_ALWAYS_SIGNED = ("host", "x-amz-target")


def parse_keys(text: str) -> dict[str, str]:
    """`ID:SECRET,ID:SECRET`: the secrets by id; empty for no text. InvalidConfig names no secret."""
    keys: dict[str, str] = {}
    for number, pair in enumerate((one.strip() for one in text.split(",") if one.strip()), 1):
        key, colon, secret = pair.partition(":")
        if not colon or not secret or _KEY.match(key) is None:
            raise InvalidConfig(f"FLEET_SQS_ACCESS_KEYS: key {number} is not written ID:SECRET")
        if key in keys:
            raise InvalidConfig(f"FLEET_SQS_ACCESS_KEYS: {key} is there twice")
        keys[key] = secret
    return keys


class Signatures:
    """Checks requests against a set of keys. Without keys nobody has to sign."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        self._keys = dict(keys)
        self._derived: dict[tuple[str, str], bytes] = {}
        self._times: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._keys)

    def check(
        self, method: str, path: bytes, query: bytes, headers: Mapping[bytes, bytes], body: bytes, *, now_s: float
    ) -> None:
        """SqsError unless one of our keys signed this. `path` and `query` as they came, still escaped."""
        authorization = headers.get(b"authorization")
        if authorization is not None:
            self._check_header(method, path, query, headers, body, _latin(authorization), now_s)
        elif b"X-Amz-Signature=" in query or b"X-Amz-Algorithm=" in query:
            self._check_query(method, path, query, headers, body, now_s)
        else:
            raise errors.no_authentication()

    def _check_header(
        self,
        method: str,
        path: bytes,
        query: bytes,
        headers: Mapping[bytes, bytes],
        body: bytes,
        authorization: str,
        now_s: float,
    ) -> None:
        found = _HEADER.match(authorization)
        if found is None:
            raise errors.incomplete_signature(_what_is_missing(authorization))
        credential, signed, signature = found.groups()
        date = _latin(headers.get(b"x-amz-date", b""))
        sent_s = self._time(date)
        if abs(now_s - sent_s) > SKEW_S:
            raise errors.request_expired(_expired(date))
        pairs = _canonical_query(query) if query else ""
        self._compare(method, path, pairs, headers, body, credential, signed, signature, date)

    def _check_query(
        self, method: str, path: bytes, query: bytes, headers: Mapping[bytes, bytes], body: bytes, now_s: float
    ) -> None:
        given = _fields(query)
        for name in ("Algorithm", "Credential", "SignedHeaders", "Signature", "Date", "Expires"):
            if not given.get(f"X-Amz-{name}"):
                raise errors.incomplete_signature(f"AWS query-string parameters must include 'X-Amz-{name}'.")
        if given["X-Amz-Algorithm"] != ALGORITHM:
            raise errors.incomplete_signature(f"Unsupported AWS 'algorithm': '{given['X-Amz-Algorithm'][:64]}'.")
        date, lasts = given["X-Amz-Date"], given["X-Amz-Expires"]
        if not (lasts.isascii() and lasts.isdigit() and len(lasts) <= 6 and 1 <= int(lasts) <= LONGEST_S):
            raise errors.incomplete_signature(f"X-Amz-Expires must be between 1 and {LONGEST_S} seconds.")
        sent_s = self._time(date)
        if now_s > sent_s + int(lasts) or now_s < sent_s - SKEW_S:
            raise errors.request_expired(_expired(date))
        pairs = _canonical_query(query, without=b"X-Amz-Signature")
        credential, signed = given["X-Amz-Credential"], given["X-Amz-SignedHeaders"]
        self._compare(method, path, pairs, headers, body, credential, signed, given["X-Amz-Signature"], date)

    def _compare(
        self,
        method: str,
        path: bytes,
        query: str,
        headers: Mapping[bytes, bytes],
        body: bytes,
        credential: str,
        signed: str,
        signature: str,
        date: str,
    ) -> None:
        key, _, scope = credential.partition("/")
        secret = self._keys.get(key)
        if secret is None:
            raise errors.invalid_client_token()
        signing_key = self._derived.get((key, scope))
        if signing_key is None:
            signing_key = self._derive(key, secret, scope)
        if not scope.startswith(date[:8]):
            raise errors.signature_does_not_match("Date in Credential scope does not match YYYYMMDD from ISO-8601.")
        request = (
            f"{method}\n{_canonical_path(path)}\n{query}\n"
            f"{_canonical_headers(signed, headers)}\n{signed}\n{sha256(body).hexdigest()}"
        )
        to_sign = f"{ALGORITHM}\n{date}\n{scope}\n{sha256(request.encode('latin-1')).hexdigest()}"
        ours = hmac.digest(signing_key, to_sign.encode("latin-1"), "sha256").hex()
        if not hmac.compare_digest(ours, signature if signature.isascii() else ""):
            raise errors.signature_does_not_match()

    def _derive(self, key: str, secret: str, scope: str) -> bytes:
        parts = scope.split("/")
        if len(parts) != 4 or not all(parts) or parts[2] != "sqs" or parts[3] != "aws4_request":
            raise errors.signature_does_not_match(
                "Credential must have 5 slash-delimited elements, e.g. keyid/date/region/sqs/aws4_request."
            )
        found = f"AWS4{secret}".encode()
        for part in parts:
            found = hmac.digest(found, part.encode("utf-8", "replace"), "sha256")
        if len(self._derived) >= _MOST_KEPT:
            self._derived.clear()
        self._derived[key, scope] = found
        return found

    def _time(self, date: str) -> int:
        """Seconds since 1970. Remembered, for many requests are of the same second."""
        found = self._times.get(date)
        if found is None:
            if _DATE.match(date) is None:
                raise errors.incomplete_signature("A signed request needs an 'X-Amz-Date', like 20300101T000000Z.")
            try:
                found = timegm(strptime(date, "%Y%m%dT%H%M%SZ"))
            except ValueError as error:
                raise errors.incomplete_signature(f"'{date}' is not a date.") from error
            if len(self._times) >= _MOST_KEPT:
                self._times.clear()
            self._times[date] = found
        return found


def _latin(value: bytes) -> str:
    return value.decode("latin-1")


def _what_is_missing(authorization: str) -> str:
    if not authorization.startswith(ALGORITHM):
        return f"The Authorization header must begin with {ALGORITHM}."
    missing = [name for name in ("Credential", "Signature", "SignedHeaders") if f"{name}=" not in authorization]
    if missing:
        return " ".join(f"Authorization header requires '{name}' parameter." for name in missing)
    return "The Authorization header is not written as Signature Version 4 has it."


def _expired(date: str) -> str:
    return f"Signature expired: {date} is not within 15 minutes of now, or its URL was good for a shorter time."


def _fields(query: bytes) -> dict[str, str]:
    pairs = (one.partition(b"=") for one in query.split(b"&"))
    return {_latin(unquote_to_bytes(name)): _latin(unquote_to_bytes(value)) for name, _, value in pairs}


# The canonical request: what client and server both make out of one, in the same words. ---------------


def _canonical_path(path: bytes) -> str:
    """Without empty and dotted segments, escaped once more than it came."""
    if path in (b"", b"/"):
        return "/"
    kept: list[str] = []
    text = _latin(path)
    for segment in text.split("/"):
        if segment == "..":
            del kept[-1:]
        elif segment not in ("", "."):
            kept.append(segment)
    end = "/" if kept and text.endswith("/") else ""
    return quote(f"/{'/'.join(kept)}{end}", safe="/~", encoding="latin-1")


def _canonical_query(query: bytes, *, without: bytes = b"") -> str:
    """Sorted, each name and value escaped in the one way that signatures know."""
    pairs = []
    for one in query.split(b"&"):
        name, _, value = one.partition(b"=")
        if one and name != without:
            pairs.append((_escaped(name), _escaped(value)))
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))


def _escaped(raw: bytes) -> str:
    return quote_from_bytes(unquote_to_bytes(raw), safe=_UNRESERVED)


def _canonical_headers(signed: str, headers: Mapping[bytes, bytes]) -> str:
    """A line each, as `signed` names them; SqsError where one is missing, or one is unsigned that must not be."""
    names = signed.split(";")
    for name in _ALWAYS_SIGNED:
        # What is not signed, somebody on the way may have changed: the server it was meant for, or the verb.
        if name not in names and (name == "host" or name.encode() in headers):
            raise errors.signature_does_not_match(f"'{name}' must be a 'SignedHeader' in the AWS Authorization header.")
    lines = []
    for name in names:
        value = headers.get(name.encode("latin-1", "replace"))
        if value is None:
            raise errors.signature_does_not_match(f"The signed header '{name[:64]}' is not in the request.")
        if b"  " in value or b"\t" in value:
            value = _BLANKS.sub(b" ", value)
        lines.append(f"{name}:{_latin(value.strip())}\n")
    return "".join(lines)
