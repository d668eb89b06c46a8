"""The tables of sources, as they were written, and the secrets that they refer to.

A table is checked where it is used. A secret is read only by a process that verifies or signs
with it: a command that lists events needs none.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ackbox.config.display import show_text
from ackbox.errors import SettingError

TABLE = "sources"
_MOST_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class SourceTable:
    """The table of one source, and its origin: a file or the code."""

    name: str
    words: Mapping[str, object] = field(repr=False)
    origin: str


def read_tables(value: object, origin: str) -> dict[str, SourceTable]:
    """Return the tables `[sources.NAME]` of a settings file."""
    if not isinstance(value, dict):
        raise SettingError(f"{TABLE} in {show_text(origin)} must hold tables: [sources.github].")
    for name, words in value.items():
        if not isinstance(words, dict):
            raise SettingError(
                f"{TABLE}.{show_text(name)} in {show_text(origin)} must be a table, as in "
                f'[sources.github], then preset = "github".'
            )
    return {name: SourceTable(name, words, show_text(origin)) for name, words in value.items()}


def join_tables(
    written: Mapping[str, SourceTable], coded: Mapping[str, SourceTable]
) -> dict[str, SourceTable]:
    """Return the tables of the file and of the code; raise `SettingError` if one is in both."""
    for name in written.keys() & coded.keys():
        places = f"{written[name].origin} and {coded[name].origin}"
        raise SettingError(f"The source {show_text(name)} is declared twice, in {places}.")
    return {**written, **coded}


def read_secret(
    reference: str, environ: Mapping[str, str] = os.environ, directory: Path = Path()
) -> bytes:
    """Return the secret that `env:NAME` or `file:PATH` names, without a line break at its end.
    Raise `SettingError` if there is none; its value is in no message."""
    kind, _, name = reference.partition(":")
    if kind == "env":
        secret = environ.get(name, "").encode(errors="surrogateescape")
        missing = f"{show_text(name)} is not set in the environment, or is empty: set it."
    else:
        secret, missing = _read_file(name, directory)
    if not (secret := secret.rstrip(b"\r\n")):
        raise SettingError(missing)
    return secret


def _read_file(name: str, directory: Path) -> tuple[bytes, str]:
    """Return the content of a file, and the error if it is empty."""
    shown = show_text(name)
    try:
        with (directory / name).open("rb") as file:
            content = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is not a path"
        raise SettingError(f"{shown} cannot be read: {reason}.") from None
    if len(content) > _MOST_BYTES:
        raise SettingError(f"{shown} is larger than 64 KiB: a file with only the secret is needed.")
    return content, f"{shown} is empty: write the secret into it."
