"""Twilio: an HMAC of the URL that Twilio calls, and of the fields of the form or of the body."""

import hmac
import re
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from urllib.parse import unquote_to_bytes, urlsplit, urlunsplit

from msgspec.structs import replace

from ackbox.errors import SettingError
from ackbox.forms import URLENCODED
from ackbox.model import Acknowledgement, InboundRequest
from ackbox.sources.fields import Delivery, Field, FirstOf, Joined, Pointer
from ackbox.sources.preset import Preset, SchemeSettings
from ackbox.sources.query import read_parameter
from ackbox.sources.schemes import (
    Scheme,
    Verification,
    check_secrets,
    is_same,
    to_bytes,
    with_headers,
)

SIGNATURE = "x-twilio-signature"
BODY_SHA256 = "bodySHA256"
_PORTS = {"https": 443, "http": 80}
_HASHES = ("sha1", "sha256")


@dataclass(frozen=True, slots=True)
class TwilioScheme:
    """The signature covers the URL, and the body in one of two ways: a form by its decoded fields,
    in the order of their names, and any other body by its SHA-256 in the URL.

    Twilio is not consistent about the port in the URL, so that the URL is tried with and without
    the standard port, as Twilio's own libraries do.
    """

    secrets: tuple[bytes, ...] = field(repr=False)
    urls: tuple[str, ...]
    hash: str

    def verify(self, request: InboundRequest) -> Verification:
        signatures = request.headers_named(SIGNATURE)
        if not any(signatures):
            return Verification.UNSIGNED
        covered = _covered_fields(request)
        if len(signatures) > 1 or covered is None:
            return Verification.MALFORMED
        signed = _read_query(request) + covered
        expected = [self._sign(secret, url, signed) for secret in self.secrets for url in self.urls]
        matches = any(is_same(text, signatures[0]) for text in expected)
        return Verification.VERIFIED if matches else Verification.BAD_SIGNATURE

    def sign(self, request: InboundRequest) -> InboundRequest:
        if not _is_form(request) and not read_parameter(request.url, BODY_SHA256):
            mark = "&" if "?" in request.url else "?"
            digest = sha256(request.body).hexdigest()
            request = replace(request, url=f"{request.url}{mark}{BODY_SHA256}={digest}")
        signature = self._sign(self.secrets[0], self.urls[0], read_signed(request))
        return with_headers(request, {SIGNATURE: signature.decode()})

    def _sign(self, secret: bytes, url: str, signed: bytes) -> bytes:
        return b64encode(hmac.digest(secret, to_bytes(url) + signed, self.hash))


def read_signed(request: InboundRequest) -> bytes:
    """Return what Twilio signs after the URL of the source. Nothing in these bytes marks where the
    query or a field ends: they are the same if somebody moves the borders."""
    return _read_query(request) + (_covered_fields(request) or b"")


def _read_query(request: InboundRequest) -> bytes:
    _, mark, query = request.url.partition("?")
    return to_bytes(mark + query)


def _covered_fields(request: InboundRequest) -> bytes | None:
    """Return the fields of the form as Twilio signs them; none of them if the URL has the SHA-256
    of the body. Return None if nothing in the signature would cover the body."""
    digests = read_parameter(request.url, BODY_SHA256)
    if digests:
        is_right = is_same(sha256(request.body).hexdigest().encode(), digests[0])
        return b"" if is_right and len(digests) == 1 else None
    if not request.body:
        return b""
    return b"".join(sorted_fields(request.body)) if _is_form(request) else None


def _is_form(request: InboundRequest) -> bool:
    kind = (request.header("content-type") or "").partition(";")[0]
    return kind.strip().lower() == URLENCODED


def sorted_fields(form: bytes) -> Iterator[bytes]:
    """Yield name and value of each field, decoded and sorted. The order of UTF-8 bytes is that of
    the characters, and a field that is repeated with the same value counts once."""
    pairs = (pair.replace(b"+", b" ").partition(b"=") for pair in form.split(b"&") if pair)
    decoded = {(unquote_to_bytes(name), unquote_to_bytes(value)) for name, _, value in pairs}
    for name, value in sorted(decoded):
        yield name + value


def scheme(settings: SchemeSettings) -> Scheme:
    secrets = check_secrets(settings.secrets)
    hash_name = settings.options.get("hash", _HASHES[0])
    if hash_name not in _HASHES:
        raise SettingError(
            f"hash must be sha1, for an auth token, or sha256, for a SharedKey, not {hash_name!r}"
        )
    return TwilioScheme(secrets, _candidate_urls(settings.public_url or ""), hash_name)


def _candidate_urls(public_url: str) -> tuple[str, ...]:
    """Return the URL without query, as it is, and with or without its standard port."""
    try:
        parts = urlsplit(public_url)._replace(query="", fragment="")
    except ValueError:
        raise SettingError("public_url must be the URL that Twilio calls") from None
    port = f":{_PORTS.get(parts.scheme, '')}"
    if parts.netloc.endswith(port):
        other = parts.netloc.removesuffix(port)
    elif re.search(r":[0-9]+$", parts.netloc):
        other = parts.netloc
    else:
        other = parts.netloc + port
    return tuple(dict.fromkeys((urlunsplit(parts), urlunsplit(parts._replace(netloc=other)))))


@dataclass(frozen=True, slots=True)
class FormHash:
    """The SHA-256 of the fields exactly as they are signed: a form with other bytes that has the
    same signature is the same delivery. Absent if the URL has the SHA-256 of the body."""

    def read(self, delivery: Delivery) -> str | None:
        request = delivery.request
        if read_parameter(request.url, BODY_SHA256):
            return None
        return sha256(b"".join(sorted_fields(request.body))).hexdigest()


@dataclass(frozen=True, slots=True)
class Prefixed:
    """A prefix and the text of a field."""

    prefix: str
    field: Field

    def read(self, delivery: Delivery) -> str | None:
        text = self.field.read(delivery)
        return None if text is None else self.prefix + text


TWILIO = Preset(
    name="twilio",
    scheme=scheme,
    # Each state of a message repeats its id.
    key=FirstOf((Joined((Pointer("/MessageSid"), Pointer("/MessageStatus"))), FormHash())),
    type=FirstOf(
        (
            Prefixed("message.", FirstOf((Pointer("/MessageStatus"), Pointer("/SmsStatus")))),
            Prefixed("call.", Pointer("/CallStatus")),
        )
    ),
    # The signature covers the text of the fields, and not where each of them begins and ends.
    fingerprint=True,
    read_signed=read_signed,
    kept_headers=("i-twilio-idempotency-token",),
    needs_public_url=True,
    # Twilio reads the response as TwiML, and reports error 12300 for JSON.
    acknowledgement=Acknowledgement(202, b"<Response/>", "text/xml; charset=utf-8"),
    options=("hash",),
)
