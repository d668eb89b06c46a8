"""Signatures that are easy to accept by mistake (F46)."""

import sys
from datetime import timedelta

import pytest
from msgspec.structs import replace

from ackbox.errors import SettingError
from ackbox.model import Handshake
from ackbox.sources.preset import SchemeSettings
from ackbox.sources.presets import PRESETS
from ackbox.sources.schemes import Scheme, Verification
from support.sources.by_schemes import AT, BODY, OTHER_WHSEC, WHSEC, WHSK, settings
from support.sources.samples import request, with_header

WHPK = "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="
BARE = request(BODY.encode(), {}, AT)


def scheme(preset: str, *secrets: str, **options: str) -> Scheme:
    return PRESETS[preset].scheme(settings(*secrets, **options))


# F46
def test_one_good_signature_among_others_is_enough() -> None:
    standard = scheme("standard-webhooks", WHSEC)
    signed = standard.sign(BARE)
    good = signed.header("webhook-signature")
    many = with_header(signed, "webhook-signature", f"v1,bad v2  v1a,AA== {good} v1,")
    assert standard.verify(many) is Verification.VERIFIED


# F46
def test_too_many_signatures_are_refused_unseen() -> None:
    standard = scheme("standard-webhooks", WHSEC)
    signed = standard.sign(BARE)
    many = " ".join([signed.header("webhook-signature") or ""] * 21)
    assert standard.verify(with_header(signed, "webhook-signature", many)) is Verification.MALFORMED


def test_a_public_key_verifies_and_does_not_sign() -> None:
    signed = scheme("standard-webhooks", WHSK).sign(BARE)
    public = scheme("standard-webhooks", WHPK)
    assert public.verify(signed) is Verification.VERIFIED
    with pytest.raises(SettingError, match="whsk_"):
        public.sign(BARE)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    with pytest.raises(SettingError, match=r"install ackbox\[crypto\]"):
        scheme("standard-webhooks", WHPK)


def test_a_signature_of_both_versions_needs_one_of_the_keys() -> None:
    signed = scheme("standard-webhooks", WHSEC).sign(BARE)
    both = scheme("standard-webhooks", WHPK, WHSEC)
    assert both.verify(signed) is Verification.VERIFIED
    assert both.verify(scheme("standard-webhooks", WHSK).sign(BARE)) is Verification.VERIFIED


# F46
def test_base64_with_other_unused_bits_is_another_text() -> None:
    standard = scheme("standard-webhooks", WHSK)
    signed = standard.sign(BARE)
    text = (signed.header("webhook-signature") or "").removesuffix("==")
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    other = text[:-1] + alphabet[alphabet.index(text[-1]) + 1] + "=="
    assert standard.verify(signed) is Verification.VERIFIED
    changed = with_header(signed, "webhook-signature", other)
    assert standard.verify(changed) is Verification.BAD_SIGNATURE


# F47
def test_an_id_with_a_dot_cannot_take_its_time_from_the_body() -> None:
    body = f"{AT}.{BODY}".encode()
    standard = scheme("standard-webhooks", WHSEC)
    signed = standard.sign(replace(BARE, body=body, received_at=BARE.received_at - timedelta(1)))
    stolen = with_header(
        with_header(signed, "webhook-id", f"{signed.header('webhook-id')}.{AT - 86_400}"),
        "webhook-timestamp",
        str(AT),
    )
    replayed = replace(stolen, body=BODY.encode(), received_at=BARE.received_at)
    assert standard.verify(replayed) is Verification.MALFORMED


# F48
@pytest.mark.parametrize("name", ["svix-id", "svix-timestamp", "svix-signature"])
def test_a_header_of_the_other_prefix_does_not_become_the_key(name: str) -> None:
    svix = scheme("svix", WHSEC)
    signed = scheme("standard-webhooks", WHSEC).sign(BARE)
    assert svix.verify(signed) is Verification.VERIFIED
    assert svix.verify(with_header(signed, name, "msg_other")) is Verification.MALFORMED


@pytest.mark.parametrize(
    "secret", ["whsec_not base64", "whsec_AAA", "whpk_AAAA", "whsk_AAAA", "other_AAAA"]
)
def test_a_secret_that_is_not_standard_is_an_error_without_the_secret(secret: str) -> None:  # F51
    with pytest.raises(SettingError, match="secret must be whsec_") as raised:
        scheme("standard-webhooks", secret)
    assert secret not in str(raised.value)


def test_stripe_ignores_other_versions_and_blanks() -> None:
    stripe = scheme("stripe", "whsec_x")
    signed = stripe.sign(BARE)
    time, _, signature = (signed.header("stripe-signature") or "").partition(",")
    more = with_header(signed, "stripe-signature", f"{time}, v0=00, v1=00, {signature},x")
    assert stripe.verify(more) is Verification.VERIFIED


# F46
@pytest.mark.parametrize("extra", ["t=1,{}", "{},t=1", "{},t="])
def test_stripe_with_two_times_is_refused(extra: str) -> None:
    stripe = scheme("stripe", "whsec_x")
    signed = stripe.sign(BARE)
    header = extra.format(signed.header("stripe-signature"))
    assert stripe.verify(with_header(signed, "stripe-signature", header)) is Verification.MALFORMED


# F46
@pytest.mark.parametrize(
    "time",
    ["nan", "", "\u0661", "1_790_000_000", f" {AT}", f"{AT} ", f"+{AT}", f"{AT}.0", f"000{AT}"],
)
def test_a_signed_time_must_be_ascii_digits(time: str) -> None:
    """The sender itself signs this text: only the form of the time is wrong."""
    slack = scheme("hmac", "key", header="x-sign", timestamp="x-time", signed="{timestamp}{body}")
    plain = scheme("hmac", "key", header="x-sign", signed="{header:X-Time}{body}")
    signed = plain.sign(with_header(BARE, "x-time", time))
    assert plain.verify(signed) is Verification.VERIFIED
    assert slack.verify(signed) is Verification.BAD_TIME


# F46
def test_gitlab_never_falls_back_from_a_bad_signature_to_the_token() -> None:
    gitlab = scheme("gitlab", WHSEC, "token")
    by_token = with_header(BARE, "x-gitlab-token", "token")
    assert gitlab.verify(by_token) is Verification.VERIFIED
    both = gitlab.sign(by_token)
    assert gitlab.verify(both) is Verification.VERIFIED
    forged = with_header(both, "webhook-signature", "v1,bad")
    assert gitlab.verify(forged) is Verification.BAD_SIGNATURE
    assert gitlab.verify(BARE) is Verification.UNSIGNED


def test_a_token_is_unsigned_if_the_header_is_of_another_method() -> None:
    basic = scheme("basic", "user:password").sign(BARE)
    assert scheme("bearer", "token").verify(basic) is Verification.UNSIGNED
    lower = with_header(BARE, "authorization", "bearer token")
    assert scheme("bearer", "token").verify(lower) is Verification.VERIFIED


def test_none_verifies_everything() -> None:
    none = PRESETS["none"].scheme(SchemeSettings(()))
    assert none.verify(none.sign(BARE)) is Verification.VERIFIED


@pytest.mark.parametrize(
    ("preset", "options", "message"),
    [
        ("hmac", {}, "header must be set"),
        ("header", {}, "header must be set"),
        ("hmac", {"header": "x", "hash": "md5"}, "hash must be one of sha256, sha1, sha384"),
        ("hmac", {"header": "x", "encoding": "hex64"}, "encoding must be one of hex, base64"),
        ("hmac", {"header": "x", "signed": "{timestamp}"}, "signed must contain {body}"),
        ("hmac", {"header": "x", "signed": "{timestamp}.{body}"}, "must not contain {timestamp}"),
        ("hmac", {"header": "x", "signed": "{url}{body}"}, "must not contain {url}"),
        ("hmac", {"header": "x", "signed": "{nonce}{body}"}, "must not contain {nonce}"),
        ("hmac", {"header": "x", "timestamp": "x-time"}, "must contain {timestamp} if"),
        ("basic", {}, "secret must have the form USER:PASSWORD"),
    ],
)
def test_a_wrong_option_is_named_with_the_allowed_values(
    preset: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingError) as raised:
        scheme(preset, "key", **options)
    assert message in str(raised.value)


def test_slack_gets_its_challenge_back() -> None:
    answer = PRESETS["slack"].signed_handshake
    assert answer is not None
    check = request(b'{"type":"url_verification","challenge":"3eZbrw1a"}', {}, AT)
    assert answer(check, settings("key")) == Handshake(b"3eZbrw1a")
    for body in (b"", b"[]", b'{"type":"url_verification","challenge":1}', BODY.encode()):
        assert answer(replace(check, body=body), settings("key")) is None


def test_a_longer_tolerance_accepts_an_older_time() -> None:
    day = SchemeSettings((OTHER_WHSEC,), tolerance=timedelta(days=1))
    stripe = PRESETS["stripe"].scheme(day)
    later = replace(stripe.sign(BARE), received_at=BARE.received_at + timedelta(hours=23))
    assert stripe.verify(later) is Verification.VERIFIED
