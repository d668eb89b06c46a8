"""The parts that schemes share: secrets, comparisons, times and headers."""

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from hmac import compare_digest

from msgspec.structs import replace

from ackbox.errors import SettingError
from ackbox.model import InboundRequest
from ackbox.sources.schemes.scheme import Verification

_SECONDS = re.compile(r"[0-9]{1,12}")


def make_hmac(secret: bytes, message: bytes, hash_name: str = "sha256") -> bytes:
    """Return the HMAC. Unlike `hmac.digest`, this keeps the interpreter lock for a small message:
    otherwise the writer thread takes the lock in the middle of a request."""
    state = _key_state(secret, hash_name).copy()
    state.update(message)
    return state.digest()


@lru_cache
def _key_state(secret: bytes, hash_name: str) -> hmac.HMAC:
    return hmac.new(secret, digestmod=hash_name)


def to_bytes(header: str) -> bytes:
    """Return the bytes of a header as they arrived."""
    return header.encode("latin-1", "backslashreplace")


def is_same(expected: bytes, given: str) -> bool:
    """Compare bytes in constant time. The comparison of texts would raise if one is not ASCII."""
    return compare_digest(expected, to_bytes(given))


def judge_time(text: str, request: InboundRequest, tolerance: timedelta) -> Verification:
    """Compare a time in seconds since 1970 with the time of arrival. Only ASCII digits are a time:
    `int` would also accept blanks, signs, underscores and the digits of other scripts."""
    if not _SECONDS.fullmatch(text):
        return Verification.BAD_TIME
    distance = abs(request.received_at.timestamp() - int(text))
    in_time = distance <= tolerance.total_seconds()
    return Verification.VERIFIED if in_time else Verification.BAD_TIME


def time_of(request: InboundRequest) -> str:
    """Return the time of arrival in whole seconds, for a signature."""
    return str(int(request.received_at.timestamp()))


def with_headers(request: InboundRequest, headers: Mapping[str, str]) -> InboundRequest:
    """Return the request with these headers, in place of others of the same names."""
    kept = (header for header in request.headers if header[0] not in headers)
    return replace(request, headers=(*kept, *headers.items()))


def decode_base64(text: bytes) -> bytes | None:
    """Decode standard base64, padded, or return None. Of the several texts for the same bytes, only
    the one that an encoder writes is accepted."""
    try:
        decoded = b64decode(text, validate=True)
    except ValueError:
        return None
    return decoded if b64encode(decoded) == text else None


def check_secrets(secrets: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return the secrets. An empty secret is an error: anybody could sign with it."""
    if not secrets or not all(secrets):
        raise SettingError("secret must not be empty")
    return secrets
