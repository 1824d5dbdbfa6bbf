"""libcurl's error codes, in our closed vocabulary."""

from __future__ import annotations

from typing import Final

import pycurl

from fleet.delivery.reply import ErrorKind

_TOO_LARGE: Final = 100  # CURLE_TOO_LARGE, which pycurl has no name for
_HTTP2_STREAM: Final = 92  # CURLE_HTTP2_STREAM, likewise

_KINDS: dict[int, ErrorKind] = {
    pycurl.E_COULDNT_RESOLVE_HOST: "UNRESOLVED",
    pycurl.E_COULDNT_CONNECT: "REFUSED",
    pycurl.E_GOT_NOTHING: "RESET",
    pycurl.E_RECV_ERROR: "RESET",
    pycurl.E_SEND_ERROR: "RESET",
    pycurl.E_PARTIAL_FILE: "RESET",
    pycurl.E_UNSUPPORTED_PROTOCOL: "PROTOCOL",
    pycurl.E_URL_MALFORMAT: "BAD_URL",
    pycurl.E_FTP_WEIRD_SERVER_REPLY: "PROTOCOL",  # the same number for HTTP
    pycurl.E_HTTP2: "PROTOCOL",
    _HTTP2_STREAM: "PROTOCOL",
    _TOO_LARGE: "PROTOCOL",
    pycurl.E_SSL_CONNECT_ERROR: "PROTOCOL",
    pycurl.E_PEER_FAILED_VERIFICATION: "PROTOCOL",
    pycurl.E_SSL_INVALIDCERTSTATUS: "PROTOCOL",
    pycurl.E_SSL_CIPHER: "PROTOCOL",
}


def error_kind(code: int, *, sent: bool) -> ErrorKind:
    """`sent`: whether the request was on the wire when it failed."""
    if code == pycurl.E_OPERATION_TIMEDOUT:
        return "TIMEOUT" if sent else "CONNECT_TIMEOUT"
    return _KINDS.get(code, "OTHER")
