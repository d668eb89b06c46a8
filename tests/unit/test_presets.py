"""Every preset accepts what the sender signs, and refuses everything else (F46)."""

from dataclasses import replace
from hashlib import sha256

import pytest
from msgspec.structs import replace as replace_struct

from ackbox.errors import SettingError
from ackbox.forms import MULTIPART, URLENCODED
from ackbox.sources.fields import Delivery, read_name
from ackbox.sources.preset import SchemeSettings
from ackbox.sources.presets import PRESETS
from ackbox.sources.schemes import Verification
from support.sources.every_sample import SAMPLES
from support.sources.mutations import just_in_time, mutations, out_of_time
from support.sources.samples import Sample, with_header

every_sample = pytest.mark.parametrize("sample", SAMPLES, ids=str)
with_a_time = pytest.mark.parametrize(
    "sample", [sample for sample in SAMPLES if sample.timed], ids=str
)


def test_every_preset_that_verifies_has_a_sample() -> None:
    assert {sample.preset for sample in SAMPLES} == set(PRESETS) - {"none"}


@every_sample
def test_what_the_sender_signs_is_verified(sample: Sample) -> None:
    assert sample.scheme.verify(sample.request) is Verification.VERIFIED


@every_sample
def test_key_and_type_are_found(sample: Sample) -> None:
    preset, delivery = PRESETS[sample.preset], Delivery(sample.request)
    body_hash = sha256(sample.request.body).hexdigest()
    assert (read_name(preset.key, delivery) or body_hash) == (sample.key or body_hash)
    assert (read_name(preset.type, delivery) if preset.type else None) == sample.type


@every_sample
def test_a_signed_key_does_not_depend_on_the_content_type(sample: Sample) -> None:  # F47
    """No signature covers this header, so that it must not be a way to another key."""
    preset, scheme = PRESETS[sample.preset], sample.scheme
    key = read_name(preset.key, Delivery(sample.request))
    types = ("application/json", "text/plain", URLENCODED, f"{MULTIPART}; boundary=x", MULTIPART)
    for values in ((), *((value,) for value in types), types):
        repeated = with_header(sample.request, "content-type", *values)
        if scheme.verify(repeated) is Verification.VERIFIED:
            assert read_name(preset.key, Delivery(repeated)) == key


@every_sample
def test_at_least_thirty_mutations_are_refused(sample: Sample) -> None:  # F46
    scheme = sample.scheme
    verified = {what: scheme.verify(request) for what, request in mutations(sample)}
    assert len(verified) >= 30
    assert [what for what, result in verified.items() if result is Verification.VERIFIED] == []


@every_sample
def test_another_secret_does_not_match(sample: Sample) -> None:  # F46
    assert _with_secrets(sample, sample.other_secret) is Verification.BAD_SIGNATURE


@every_sample
def test_during_a_rotation_either_secret_matches(sample: Sample) -> None:  # F46
    (secret,) = sample.settings.secrets
    assert _with_secrets(sample, sample.other_secret, secret) is Verification.VERIFIED
    assert _with_secrets(sample, secret, sample.other_secret) is Verification.VERIFIED


@with_a_time
def test_the_time_may_be_as_far_away_as_the_tolerance(sample: Sample) -> None:  # F46
    scheme = sample.scheme
    for _, request in just_in_time(sample):
        assert scheme.verify(request) is Verification.VERIFIED
    for _, request in out_of_time(sample):
        assert scheme.verify(request) is Verification.BAD_TIME


@pytest.mark.parametrize("sample", [sample for sample in SAMPLES if sample.can_sign], ids=str)
def test_what_a_preset_signs_it_verifies(sample: Sample) -> None:
    scheme = sample.scheme
    bare = replace_struct(sample.request, headers=_unsigned_headers(sample))
    assert scheme.verify(scheme.sign(bare)) is Verification.VERIFIED


@every_sample
def test_no_secret_is_shown(sample: Sample) -> None:  # F51
    (secret,) = sample.settings.secrets
    shown = f"{sample.settings!r} {sample.scheme!r}"
    assert secret.decode() not in shown
    assert repr(secret) not in shown


@pytest.mark.parametrize("name", sorted(set(PRESETS) - {"none"}))
def test_an_empty_secret_is_an_error(name: str) -> None:
    for secrets in ((), (b"",), (b"other:secret", b"")):
        with pytest.raises(SettingError, match="secret must"):
            PRESETS[name].scheme(SchemeSettings(secrets, options={"header": "x-signature"}))


def test_a_preset_is_found_by_its_name() -> None:
    assert [name for name, preset in PRESETS.items() if name != preset.name] == []
    assert list(PRESETS) == sorted(PRESETS)


def _with_secrets(sample: Sample, *secrets: bytes) -> Verification:
    settings = replace(sample.settings, secrets=secrets)
    return PRESETS[sample.preset].scheme(settings).verify(sample.request)


def _unsigned_headers(sample: Sample) -> tuple[tuple[str, str], ...]:
    removed = (sample.signature, sample.time)
    return tuple(header for header in sample.request.headers if header[0] not in removed)
