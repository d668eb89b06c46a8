"""Senders without a preset of their own: an HMAC in a header, a token in a header, or nothing."""

from base64 import b64encode
from collections.abc import Iterable

from ackbox.errors import SettingError
from ackbox.sources.fields import Header, Pointer
from ackbox.sources.preset import Preset, SchemeSettings
from ackbox.sources.schemes import (
    ENCODINGS,
    HASHES,
    HmacHeader,
    NoVerification,
    Scheme,
    TokenHeader,
    check_secrets,
    parse_template,
)


def hmac_scheme(settings: SchemeSettings) -> Scheme:
    timestamp = settings.options.get("timestamp", "").lower() or None
    signed = settings.options.get("signed", "{body}")
    if timestamp and "{timestamp}" not in signed:
        raise SettingError("signed must contain {timestamp} if timestamp is set")
    return HmacHeader(
        secrets=check_secrets(settings.secrets),
        header=_require(settings, "header"),
        prefix=settings.options.get("prefix", ""),
        hash=_choose(settings, "hash", HASHES),
        encoding=_choose(settings, "encoding", ENCODINGS),
        signed=parse_template(signed, timestamp, settings.public_url),
        timestamp=timestamp,
        tolerance=settings.tolerance,
    )


def bearer_scheme(settings: SchemeSettings) -> Scheme:
    tokens = check_secrets(settings.secrets)
    return TokenHeader(tokens=tokens, header="authorization", method="Bearer")


def basic_scheme(settings: SchemeSettings) -> Scheme:
    secrets = check_secrets(settings.secrets)
    if not all(b":" in secret for secret in secrets):
        raise SettingError("secret must have the form USER:PASSWORD for preset basic")
    tokens = tuple(b64encode(secret) for secret in secrets)
    return TokenHeader(tokens=tokens, header="authorization", method="Basic")


def header_scheme(settings: SchemeSettings) -> Scheme:
    tokens = check_secrets(settings.secrets)
    return TokenHeader(tokens=tokens, header=_require(settings, "header"))


def no_scheme(_: SchemeSettings) -> Scheme:
    return NoVerification()


def _require(settings: SchemeSettings, word: str) -> str:
    if value := settings.options.get(word):
        return value.lower()
    raise SettingError(f"{word} must be set: the name of the header with the signature or token")


def _choose(settings: SchemeSettings, word: str, allowed: Iterable[str]) -> str:
    names = tuple(allowed)
    value = settings.options.get(word, names[0])
    if value in names:
        return value
    raise SettingError(f"{word} must be one of {', '.join(names)}, not {value!r}")


HMAC = Preset(
    name="hmac",
    scheme=hmac_scheme,
    type=Pointer("/type"),
    has_time=True,
    options=("header", "prefix", "hash", "encoding", "signed", "timestamp"),
)
BEARER = Preset(
    name="bearer", scheme=bearer_scheme, key=Header("idempotency-key"), type=Pointer("/type")
)
BASIC = Preset(
    name="basic", scheme=basic_scheme, key=Header("idempotency-key"), type=Pointer("/type")
)
HEADER = Preset(
    name="header",
    scheme=header_scheme,
    key=Header("idempotency-key"),
    type=Pointer("/type"),
    options=("header",),
)
NONE = Preset(
    name="none",
    scheme=no_scheme,
    key=Header("idempotency-key"),
    type=Pointer("/type"),
    needs_secret=False,
)
