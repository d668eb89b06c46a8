"""From the environment and the settings file to `Settings`, or to one line of what is wrong."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ackbox.config.display import show, show_given, show_text
from ackbox.config.files import find_file, read_file
from ackbox.config.settings import Settings
from ackbox.errors import SettingError

ENVIRONMENT = "environment"


@dataclass(frozen=True, slots=True)
class Given:
    """A value as it was written, and the place: the environment, or the name of a file."""

    value: object = field(repr=False)  # it may be a secret
    origin: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings, what of them was given, and the file that was read."""

    settings: Settings
    given: Mapping[str, Given]
    file: str | None


def load_from_process() -> Settings:
    return load(os.environ, directory=Path())


def load(environ: Mapping[str, str], *, directory: Path) -> Settings:
    """Read the settings of a process that starts in this directory."""
    return resolve(environ, directory=directory).settings


def resolve(environ: Mapping[str, str], *, directory: Path) -> Resolved:
    """As `load`, and remember where each value came from."""
    file = find_file(environ, directory)
    written = {} if file is None else read_file(file, directory)
    given = {name: Given(value, str(file)) for name, value in written.items()}
    for name in Settings.model_fields:
        if name.upper() in environ:
            given[name] = Given(environ[name.upper()], ENVIRONMENT)
    return Resolved(_validate(given), given, file)


def _validate(given: Mapping[str, Given]) -> Settings:
    try:
        return Settings.model_validate({name: item.value for name, item in given.items()})
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
    raise SettingError(_refuse(first, given))


def _refuse(error: ErrorDetails, given: Mapping[str, Given]) -> str:
    context = error.get("ctx", {})
    if error["type"] == "disagree":
        name, reason = _blame(context["high"], context["low"], given)
    else:
        name, reason = str(error["loc"][0]), str(context.get("error", error["msg"]))
    item = given[name]
    origin = f"the {ENVIRONMENT}" if item.origin == ENVIRONMENT else show_text(item.origin)
    return f"{name.upper()}={show_given(name, item.value)} in {origin} is not valid: {reason}."


def _blame(high: str, low: str, given: Mapping[str, Given]) -> tuple[str, str]:
    """Of two settings that disagree, the one that somebody wrote, and what it should have been."""
    name, other, limit = (high, low, "at least") if high in given else (low, high, "at most")
    value = (
        show_given(other, given[other].value)
        if other in given
        else show(other, Settings.model_fields[other].default)
    )
    return name, f"{limit} {other.upper()} ({value}) is expected"
