"""The settings file: the TOML file that ACKBOX_CONFIG names, or `ackbox.toml`."""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

from ackbox.config.display import show_text
from ackbox.config.names import FILE_VARIABLE, by_field
from ackbox.config.sources import TABLE, SourceTable, read_tables
from ackbox.errors import SettingError

DEFAULT_FILE = "ackbox.toml"


def find_file(environ: Mapping[str, str], directory: Path) -> str | None:
    """Return the name of the file to read, if any. A file that ACKBOX_CONFIG names must exist."""
    named = environ.get(FILE_VARIABLE)
    if named is not None:
        return named
    # A dangling link counts as present, and is an error: its settings must not vanish silently.
    return DEFAULT_FILE if os.path.lexists(directory / DEFAULT_FILE) else None


def read_file(name: str, directory: Path) -> tuple[dict[str, object], dict[str, SourceTable]]:
    """Return the settings of a file by field name, and its tables of sources."""
    document = _parse(_decode(_read(name, directory), name), name)
    tables = read_tables(document.pop(TABLE, {}), name)
    return by_field(document, name), tables


def _read(name: str, directory: Path) -> bytes:
    try:
        return (directory / name).read_bytes()
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else str(problem)
        raise SettingError(
            f"{show_text(name)} cannot be read: {reason}. {FILE_VARIABLE} is "
            f"the path of a TOML file; unset means {DEFAULT_FILE} if present."
        ) from None


def _decode(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        raise SettingError(
            f"{show_text(name)} is not valid UTF-8 at line {line}: save it as UTF-8."
        ) from None


def _parse(text: str, name: str) -> dict[str, object]:
    try:
        return tomllib.loads(text)
    except RecursionError:
        reason = "it is nested too deep"
    except ValueError as problem:  # TOMLDecodeError, or a number with too many digits
        last = f"at line {text.count(chr(10)) + 1}, the end of the file"
        reason = str(problem).replace("at end of document", last)
    raise SettingError(f"{show_text(name)} is not valid TOML: {reason}.")
