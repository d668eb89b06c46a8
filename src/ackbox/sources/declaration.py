"""Read the table of a source: the same words in `[sources.NAME]` and in `inbox.source(...)`."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from difflib import get_close_matches

from ackbox.errors import SettingError
from ackbox.model import APP_SOURCE
from ackbox.quantities import parse_duration
from ackbox.sources.fields import Field, parse_field
from ackbox.sources.preset import Preset, SchemeSettings
from ackbox.sources.presets import PRESETS
from ackbox.sources.split import SplitRule, parse_split
from ackbox.text import one_line

NONE = "none"
_FIELDS = ("key", "type", "lane", "sequence", "time")
_WORDS = (
    "preset",
    "verify",
    "secret",
    "secrets",
    "public_url",
    "tolerance",
    "headers",
    "split",
    *_FIELDS,
)
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:.+")
_MAY_BE_SECRET = re.compile(r"authorization|cookie|signature|token|secret|hmac|password|api-?key")
_LONGEST_TOLERANCE = timedelta(days=1)
_RESERVED = {
    "webhooks": 'it is the source of POST /webhooks, and takes only verify = "none"',
    APP_SOURCE: "it is the source of the events that your application sends itself",
}
Refuse = Callable[[str, str], SettingError]
"""Return the error for a key of the table, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceDeclaration:
    """The checked table of one source. `secrets` are references, such as `env:GITHUB_SECRET`;
    their values are read at the start. `fields` are those that the table overrides."""

    name: str
    origin: str
    preset: Preset
    is_verified: bool
    secrets: tuple[str, ...] = ()
    tolerance: timedelta | None = None
    public_url: str | None = None
    options: Mapping[str, str] = field(repr=False)
    fields: Mapping[str, Field]
    headers: tuple[str, ...] = ()
    split: SplitRule | None = None

    @property
    def secret_headers(self) -> frozenset[str]:
        """The headers that the table declares for the token or the signature, in lower case."""
        return _secret_headers(self.options)

    def settings(self, secrets: tuple[bytes, ...]) -> SchemeSettings:
        """Return the settings of the scheme with the values of the secrets."""
        tolerance = {} if self.tolerance is None else {"tolerance": self.tolerance}
        return SchemeSettings(
            secrets=secrets, public_url=self.public_url, options=self.options, **tolerance
        )

    def with_secret_options(self, read_secret: Callable[[str], bytes]) -> "SourceDeclaration":
        """Return the declaration with the values of those options that are references."""
        values = {
            word: read_secret(self.options[word]).decode("utf-8", "replace")
            for word in self.preset.secret_options
            if word in self.options
        }
        return replace(self, options={**self.options, **values})

    def refuse(self, reason: str) -> SettingError:
        return SettingError(f"[sources.{self.name}] in {self.origin}: {reason}")


def declare(
    name: str,
    words: Mapping[str, object],
    origin: str,
    presets: Mapping[str, Preset] = PRESETS,
) -> SourceDeclaration:
    """Check the table of a source; raise `SettingError` with the key and the allowed values."""

    def refuse(key: str, reason: str) -> SettingError:
        return SettingError(f"[sources.{one_line(name, 80)}] in {origin}: {key} {reason}.")

    _check_name(name, refuse)
    preset = _find_preset(words, presets, refuse)
    _check_words(words, preset, refuse)
    is_verified = words.get("verify") != NONE and preset.name != NONE
    split = _read_split(words, refuse)
    _check_item_key(words, split or preset.split, refuse)
    options = _read_options(words, preset, refuse)
    return SourceDeclaration(
        name=name,
        origin=origin,
        preset=preset,
        is_verified=is_verified,
        secrets=_read_secrets(words, preset, is_verified, refuse),
        tolerance=_read_tolerance(words, preset, refuse),
        public_url=_read_url(words, preset, refuse),
        options=options,
        fields={word: _read_field(words, word, refuse) for word in _FIELDS if word in words},
        headers=_read_headers(words, _secret_headers(options), refuse),
        split=split,
    )


def is_open_webhooks(words: Mapping[str, object], origin: str) -> bool:
    """Return whether the table `[sources.webhooks]` opens `/webhooks` to anyone; raise
    `SettingError` if it says anything else."""
    if dict(words) != {"verify": NONE}:
        raise SettingError(
            f'[sources.webhooks] in {origin} takes verify = "none" and nothing else, which lets '
            "anyone send to /webhooks although a signed source is declared."
        )
    return True


def _check_name(name: str, refuse: Refuse) -> None:
    if name in _RESERVED:
        raise refuse("the name", f"is reserved: {_RESERVED[name]}")
    if not _NAME.fullmatch(name):
        raise refuse(
            "the name",
            "is part of the URL /in/NAME: 1 to 63 characters are expected, of a to z, 0 to 9 and "
            "_ . -, the first one a letter or a digit",
        )


def _find_preset(
    words: Mapping[str, object], presets: Mapping[str, Preset], refuse: Refuse
) -> Preset:
    allowed = f"one of {', '.join(sorted(presets))} is expected"
    verify = words.get("verify", NONE)
    if verify != NONE:
        raise refuse(f"verify = {_show(verify)}", 'is not valid: only "none" can be written out')
    if "preset" not in words and "verify" not in words:
        raise refuse("preset", f'is missing: {allowed}, or verify = "none" to check nothing')
    preset = presets.get(str(words.get("preset", NONE)))
    if preset is None:
        raise refuse(f"preset = {_show(words.get('preset'))}", f"is not valid: {allowed}")
    return preset


def _check_words(words: Mapping[str, object], preset: Preset, refuse: Refuse) -> None:
    allowed = (*_WORDS, *preset.options)
    for word in words:
        if word not in allowed:
            near = get_close_matches(word, allowed, n=1)
            hint = f"did you mean {near[0]}?" if near else f"{', '.join(allowed)} are allowed"
            raise refuse(one_line(word, 80), f"is not a key of this table: {hint}")


def _read_secrets(
    words: Mapping[str, object], preset: Preset, is_verified: bool, refuse: Refuse
) -> tuple[str, ...]:
    if not is_verified:
        return ()
    if "secret" in words and "secrets" in words:
        raise refuse("secrets", "and secret are both given: keep one of them")
    word = "secrets" if "secrets" in words else "secret"
    given = words.get(word, [])
    references = given if isinstance(given, list | tuple) and word == "secrets" else [given]
    if preset.needs_secret and not given:
        raise refuse("secret", f"is missing: {_A_REFERENCE}")
    if not given:
        return ()
    for reference in references:
        if not isinstance(reference, str) or not _REFERENCE.fullmatch(reference):
            raise refuse(word, f"is not valid (its value is not shown): {_A_REFERENCE}")
    return tuple(str(reference) for reference in references)


def _read_options(words: Mapping[str, object], preset: Preset, refuse: Refuse) -> dict[str, str]:
    options = {word: _text(words, word, refuse) for word in preset.options if word in words}
    for word in preset.secret_options:
        if not _REFERENCE.fullmatch(options.get(word, "env:NAME")):
            raise refuse(word, f"is not valid (its value is not shown): {_A_REFERENCE}")
    return options


_A_REFERENCE = (
    'a reference is expected, "env:NAME" for an environment variable or "file:PATH" for a file; '
    "secrets takes a list of references, for rotation"
)


def _read_tolerance(
    words: Mapping[str, object], preset: Preset, refuse: Refuse
) -> timedelta | None:
    if "tolerance" not in words:
        return None
    if not preset.has_time:
        raise refuse("tolerance", f"has no meaning for {preset.name}, which signs no time")
    text = _text(words, "tolerance", refuse)
    try:
        tolerance = parse_duration(text)
    except ValueError as error:
        raise refuse(f"tolerance = {_show(text)}", f"is not valid: {error}") from None
    if not timedelta(seconds=1) <= tolerance <= _LONGEST_TOLERANCE:
        raise refuse(f"tolerance = {_show(text)}", "is not valid: 1s to 1d is expected")
    return tolerance


def _read_url(words: Mapping[str, object], preset: Preset, refuse: Refuse) -> str | None:
    expected = 'the URL that the sender calls is expected, such as "https://example.com/in/NAME"'
    if "public_url" not in words:
        if preset.needs_public_url:
            raise refuse("public_url", f"is missing, because {preset.name} signs it: {expected}")
        return None
    url = _text(words, "public_url", refuse)
    if not re.fullmatch(r"https?://[^\s/?#]+\S*", url):
        raise refuse(f"public_url = {_show(url)}", f"is not valid: {expected}")
    return url


def _read_field(words: Mapping[str, object], word: str, refuse: Refuse) -> Field:
    text = _text(words, word, refuse)
    try:
        return parse_field(word, text)
    except SettingError as error:
        raise refuse(word, f"is not valid: {error}") from None


def _read_split(words: Mapping[str, object], refuse: Refuse) -> SplitRule | None:
    if "split" not in words:
        return None
    text = "" if words["split"] == "" else _text(words, "split", refuse)
    try:
        return parse_split("split", text)
    except SettingError as error:
        raise refuse("split", f"is not valid: {error}") from None


def _check_item_key(words: Mapping[str, object], split: SplitRule | None, refuse: Refuse) -> None:
    """Refuse a key that all items of a delivery share: only the first of them would be recorded."""
    if split is None or words.get("key", "sha256") == "sha256":
        return
    key = _text(words, "key", refuse)
    if not any(key.startswith(prefix) for prefix in split.item_prefixes):
        raise refuse(
            f"key = {_show(key)}",
            "is not valid: deliveries are split, so a JSON Pointer into the item is expected, "
            f'such as "{split.item_prefixes[0]}id", or "sha256"',
        )


def _secret_headers(options: Mapping[str, str]) -> frozenset[str]:
    return frozenset({options["header"].lower()} if "header" in options else ())


def _read_headers(
    words: Mapping[str, object], secret: frozenset[str], refuse: Refuse
) -> tuple[str, ...]:
    names = words.get("headers", [])
    if not isinstance(names, list | tuple):
        raise refuse("headers", 'must be a list of header names to keep, such as ["X-Topic"]')
    for name in names:
        if not isinstance(name, str) or not _HEADER.fullmatch(name):
            raise refuse("headers", f"has {_show(name)}, which is not the name of a header")
        if name.lower() in secret or _MAY_BE_SECRET.search(name.lower()):
            raise refuse("headers", f"has {name}: a header that may carry a secret is never kept")
    return tuple(name.lower() for name in names)


def _text(words: Mapping[str, object], word: str, refuse: Refuse) -> str:
    value = words[word]
    if not isinstance(value, str) or not value:
        raise refuse(f"{word} = {_show(value)}", "is not valid: a text is expected")
    return value


def _show(value: object) -> str:
    return f'"{one_line(value, 80)}"' if isinstance(value, str) else type(value).__name__
