"""A wrong table of a source is refused with a line that names the key and the allowed values."""

from collections.abc import Mapping
from datetime import timedelta

import pytest

from ackbox.errors import SettingError
from ackbox.sources.declaration import SourceDeclaration, declare, is_open_webhooks
from ackbox.sources.fields import BODY_HASH, Header, Pointer
from ackbox.sources.split import SplitRule
from support.http.signed_preset import PRESETS

SECRET = {"preset": "secret", "secret": "env:S"}


def read(words: Mapping[str, object], name: str = "shop") -> SourceDeclaration:
    return declare(name, words, "ackbox.toml", PRESETS)


@pytest.mark.parametrize(
    ("split", "key"),
    [("", "/0/id"), ("/value", "/value/0/id"), ("/a/*/b", "/a/0/b/0/id"), ("/value", "sha256")],
)
def test_the_key_of_a_split_delivery_is_in_the_item(split: str, key: str) -> None:
    source = read({**SECRET, "split": split, "key": key})
    assert source.split == SplitRule((split,))


def test_a_table_becomes_a_declaration() -> None:
    words = {
        "preset": "secret",
        "secrets": ["env:NEW", "file:/run/secrets/old"],
        "tolerance": "10m",
        "key": "/id",
        "lane": "X-Account",
        "type": "sha256",
        "headers": ["X-Topic", "X-Shop"],
        "header": "X-Secret",
        "public_url": "https://example.com/in/shop?x=1",
    }
    source = read(words)
    assert source.secrets == ("env:NEW", "file:/run/secrets/old")
    assert source.tolerance == timedelta(minutes=10)
    assert source.fields == {"key": Pointer("/id"), "lane": Header("x-account"), "type": BODY_HASH}
    assert source.headers == ("x-topic", "x-shop")
    assert source.options == {"header": "X-Secret"}
    assert source.public_url == "https://example.com/in/shop?x=1"
    assert source.is_verified


def test_a_source_without_verification_is_written_out() -> None:
    assert not read({"verify": "none"}).is_verified
    assert not read({"preset": "secret", "verify": "none"}).is_verified
    assert not read({"preset": "none"}).is_verified


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ({}, 'preset is missing: one of none, secret, url is expected, or verify = "none"'),
        ({"preset": "sekret"}, 'preset = "sekret" is not valid: one of none, secret, url is exp'),
        ({"preset": 3}, "preset = int is not valid: one of none, secret, url is expected"),
        ({**SECRET, "verify": "yes"}, 'verify = "yes" is not valid: only "none" can be written'),
        ({**SECRET, "tolerence": "1m"}, "tolerence is not a key of this table: did you mean tol"),
        ({**SECRET, "zzz": 1}, "zzz is not a key of this table: preset, verify, secret, secrets"),
        ({"preset": "secret"}, 'secret is missing: a reference is expected, "env:NAME"'),
        ({"preset": "secret", "secrets": []}, "secret is missing: a reference is expected"),
        ({"preset": "secret", "secret": "hunter2"}, "secret is not valid (its value is not shown)"),
        ({"preset": "secret", "secrets": ["hunter2"]}, "secrets is not valid (its value is not sh"),
        ({"preset": "secret", "secret": "env:"}, "secret is not valid (its value is not shown)"),
        ({**SECRET, "secrets": ["env:T"]}, "secrets and secret are both given: keep one of them"),
        ({**SECRET, "tolerance": "5"}, 'tolerance = "5" is not valid: add a unit'),
        ({**SECRET, "tolerance": "2d"}, 'tolerance = "2d" is not valid: 1s to 1d is expected'),
        ({**SECRET, "tolerance": 5}, "tolerance = int is not valid: a text is expected"),
        ({"verify": "none", "tolerance": "1m"}, "tolerance has no meaning for none"),
        ({"preset": "url", "secret": "env:S"}, "public_url is missing, because url signs it"),
        (
            {**SECRET, "token": "hunter2"},
            "token is not valid (its value is not shown): a reference",
        ),
        ({**SECRET, "public_url": "x"}, 'public_url = "x" is not valid: the URL that the sender'),
        ({**SECRET, "key": "/a~2"}, "key is not valid: key must be a JSON Pointer"),
        ({**SECRET, "split": "items"}, "split is not valid: split must be a JSON Pointer such as"),
        ({**SECRET, "split": 3}, "split = int is not valid: a text is expected"),
        ({**SECRET, "split": "/items", "key": "X-Id"}, 'key = "X-Id" is not valid: deliveries are'),
        ({**SECRET, "split": "", "key": "/id"}, 'key = "/id" is not valid: deliveries are split'),
        ({**SECRET, "headers": "X-Topic"}, "headers must be a list of header names to keep"),
        ({**SECRET, "headers": ["a b"]}, 'headers has "a b", which is not the name of a header'),
        ({**SECRET, "headers": ["Authorization"]}, "headers has Authorization: a header that may"),
        ({**SECRET, "headers": ["X-Gitlab-Token"]}, "headers has X-Gitlab-Token: a header that "),
    ],
)
def test_a_wrong_table_is_refused_by_its_key(words: dict[str, object], line: str) -> None:
    with pytest.raises(SettingError) as refusal:
        read(words)
    assert str(refusal.value).startswith(f"[sources.shop] in ackbox.toml: {line}")
    assert "hunter2" not in str(refusal.value)


def test_an_option_that_is_a_secret_is_read_like_one() -> None:  # F51
    source = read({**SECRET, "token": "env:TOKEN", "header": "X-Secret"})
    with_values = source.with_secret_options({"env:TOKEN": b"hunter2"}.__getitem__)
    assert with_values.options == {"token": "hunter2", "header": "X-Secret"}
    assert "hunter2" not in repr(with_values)


@pytest.mark.parametrize("name", ["", "a/b", "A", "ü", "-a", "a" * 64, "a\nb"])
def test_a_name_is_a_part_of_a_url(name: str) -> None:
    with pytest.raises(SettingError, match=r"the name is part of the URL /in/NAME"):
        read(SECRET, name)


@pytest.mark.parametrize("name", ["webhooks", "app"])
def test_the_names_of_our_own_sources_are_reserved(name: str) -> None:
    with pytest.raises(SettingError, match="the name is reserved"):
        read(SECRET, name)


def test_the_table_of_webhooks_takes_one_word() -> None:
    assert is_open_webhooks({"verify": "none"}, "ackbox.toml")
    with pytest.raises(SettingError, match="takes verify"):
        is_open_webhooks({"verify": "none", "key": "/id"}, "ackbox.toml")


@pytest.mark.parametrize("preset", ["header", "hmac"])
def test_the_header_of_the_token_is_never_kept(preset: str) -> None:
    words = {"preset": preset, "secret": "env:S", "header": "X-Auth", "headers": ["X-Topic"]}
    assert declare("shop", words, "ackbox.toml").secret_headers == {"x-auth"}
    with pytest.raises(SettingError, match="headers has x-auth: a header that may carry a secret"):
        declare("shop", {**words, "headers": ["x-auth"]}, "ackbox.toml")
