"""Each setting with its origin, for `ackbox config`."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ackbox.config.display import is_secret, show, show_text
from ackbox.config.loader import DEFAULT, ENVIRONMENT, Given, Resolved, resolve
from ackbox.config.names import FILE_VARIABLE
from ackbox.config.settings import Settings


@dataclass(frozen=True, slots=True)
class SettingOrigin:
    """A setting as anybody may see it."""

    name: str
    value: str  # secrets and passwords inside addresses are masked
    origin: str  # "default", "environment", "environment (ACKBOX_PORT)", or the settings file
    secret: bool


def explain_process() -> list[SettingOrigin]:
    return explain(os.environ, directory=Path())


def explain(environ: Mapping[str, str], *, directory: Path) -> list[SettingOrigin]:
    """Return every setting in the order of the reference page, and at the end the settings file."""
    resolved = resolve(environ, directory=directory)
    rows = [_origin_of(name, resolved) for name in Settings.model_fields]
    file = "unset" if resolved.file is None else show_text(resolved.file)
    origin = ENVIRONMENT if FILE_VARIABLE in environ else DEFAULT
    return [*rows, SettingOrigin(FILE_VARIABLE, file, origin, secret=False)]


def _origin_of(name: str, resolved: Resolved) -> SettingOrigin:
    given = resolved.given.get(name)
    return SettingOrigin(
        name=name.upper(),
        value=show(name, getattr(resolved.settings, name)),
        origin=DEFAULT if given is None else _show_origin(name, given),
        secret=is_secret(name),
    )


def _show_origin(name: str, given: Given) -> str:
    """Name the variable where it differs from the setting."""
    is_named = given.variable is not None and given.variable != name.upper()
    return f"{given.origin} ({given.variable})" if is_named else given.origin
