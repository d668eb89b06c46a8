"""Resolve the settings from code, environment, file and defaults, or say in one line what is wrong.

The command line wins over code, code over the environment, the environment over the file, the file
over the defaults. Both the command line and code arrive here as `overrides`. In the environment, a
variable with the prefix wins over the same variable without it (`ACKBOX_PORT` over `PORT`), and
`ACKBOX_DB_PATH` also over `DATABASE_URL`."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ackbox.config.display import show, show_given, show_text
from ackbox.config.files import find_file, read_file
from ackbox.config.names import (
    by_field,
    is_image_default,
    prefixed,
    prefixed_variables,
    without_service_links,
)
from ackbox.config.settings import Settings
from ackbox.config.sources import SourceTable, join_tables
from ackbox.errors import SettingError

ENVIRONMENT = "environment"
DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Given:
    """A value as it was written, and its origin: the environment, a file, or the code.
    `variable` is the name of the environment variable, which the container image may have set."""

    value: object = field(repr=False)  # it may be a secret
    origin: str
    variable: str | None = None
    from_image: bool = False


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings, the values that were given, the file that was read, the variables with our
    prefix, the unprefixed variables that are ignored, because the prefixed variable has another
    value, and the tables of sources."""

    settings: Settings
    given: Mapping[str, Given]
    file: str | None
    prefixed: list[str]
    ignored: list[str]
    sources: Mapping[str, SourceTable]

    @property
    def ledger_origin(self) -> str:
        """The variable that chose the ledger, or the setting and the file or code that contains
        it."""
        name = self._ledger_setting
        given = self.given.get(name)
        if given is None:
            return DEFAULT
        return given.variable or f"{name} in {given.origin}"

    @property
    def _ledger_setting(self) -> str:
        return "db_path" if self.settings.database_url is None else "database_url"

    def warn_of_variables(self) -> list[str]:
        """Return a line for each unprefixed variable that may act against the user's intent."""
        return [*self.warn_of_unprefixed_ledger(), *self.warn_of_ignored_variables()]

    def warn_of_unprefixed_ledger(self) -> list[str]:
        """Return a line if a name that another application may own chooses the ledger, although
        this environment uses our prefix (N3)."""
        name = self._ledger_setting
        if not self.prefixed or self.ledger_origin != name.upper() or self.given[name].from_image:
            return []
        return [
            f"{name.upper()} chooses the ledger, but another application may use a variable of "
            f"that name. Since {self.prefixed[0]} is set, this environment uses prefixed names: "
            f"set {prefixed(name)}, or unset {name.upper()}."
        ]

    def warn_of_ignored_variables(self) -> list[str]:
        """Return a line for each setting whose two names have different values: with
        `ACKBOX_DB_PATH` exported, a command that is given `DB_PATH` does not use it (N3)."""
        return [
            f"{prefixed(name)} and {name} have different values, and {prefixed(name)} is used: "
            f"change {prefixed(name)} if you mean the value of {name}, or unset {name}."
            for name in self.ignored
        ]


def load_from_process() -> Settings:
    return resolve_process().settings


def load(environ: Mapping[str, str], *, directory: Path) -> Settings:
    """Read the settings of a process that starts in this directory."""
    return resolve(environ, directory=directory).settings


def resolve_process(
    overrides: Mapping[str, Given] | None = None,
    *,
    embedded: bool = False,
    sources: Mapping[str, SourceTable] | None = None,
) -> Resolved:
    return resolve(
        os.environ, directory=Path(), overrides=overrides, embedded=embedded, sources=sources
    )


def resolve(
    environ: Mapping[str, str],
    *,
    directory: Path,
    overrides: Mapping[str, Given] | None = None,
    embedded: bool = False,
    sources: Mapping[str, SourceTable] | None = None,
) -> Resolved:
    """Read the settings, and remember where each value came from. An `embedded` inbox reads only
    the prefixed variables: unprefixed variables belong to the application around it. `sources` are
    the tables that the code declares."""
    ours = without_service_links(environ)
    variables = prefixed_variables(ours)
    file = find_file(ours, directory)
    written, tables = ({}, {}) if file is None else read_file(file, directory)
    given = {name: Given(value, str(file)) for name, value in written.items()}
    given |= _read_environment(ours, embedded)
    given |= overrides or {}
    ignored = [] if embedded else _find_ignored(given, ours)
    tables = join_tables(tables, sources or {})
    return Resolved(_validate(given), given, file, variables, ignored, tables)


def read_overrides(settings: Mapping[str, object], origin: str) -> dict[str, Given]:
    """Return the settings that code overrides; raise `SettingError` if a name is no setting."""
    if not isinstance(settings, Mapping):
        raise SettingError(
            "Inbox takes a dict of the settings to override, as in "
            f"Inbox(settings={{'max_attempts': 3}}), not {type(settings).__name__}."
        )
    fields = by_field(settings, origin)
    return {name: Given(value, origin) for name, value in fields.items()}


def _read_environment(environ: Mapping[str, str], embedded: bool) -> dict[str, Given]:
    given = {}
    for name in Settings.model_fields:
        variables = [prefixed(name)] if embedded else [prefixed(name), name.upper()]
        for variable in variables:
            if variable in environ:
                from_image = is_image_default(environ, variable)
                given[name] = Given(environ[variable], ENVIRONMENT, variable, from_image)
                break
    return _without_database_of_another(given)


def _without_database_of_another(given: dict[str, Given]) -> dict[str, Given]:
    """Leave `DATABASE_URL` to the application that owns it if `ACKBOX_DB_PATH` names our ledger."""
    path, url = given.get("db_path"), given.get("database_url")
    if path and url and (path.variable, url.variable) == ("ACKBOX_DB_PATH", "DATABASE_URL"):
        del given["database_url"]
    return given


def _find_ignored(given: Mapping[str, Given], environ: Mapping[str, str]) -> list[str]:
    """Return the unprefixed variables that are ignored, because the prefixed variable of the same
    setting has another value."""
    return [
        name.upper()
        for name, item in given.items()
        if item.variable == prefixed(name)
        and environ.get(name.upper(), item.value) != item.value
        and not is_image_default(environ, name.upper())
    ]


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
    variable = item.variable or name.upper()
    origin = f"the {ENVIRONMENT}" if item.origin == ENVIRONMENT else show_text(item.origin)
    return f"{variable}={show_given(name, item.value)} in {origin} is not valid: {reason}."


def _blame(high: str, low: str, given: Mapping[str, Given]) -> tuple[str, str]:
    """Choose which of two contradicting settings to report, one that was given, and say which value
    it needs."""
    name, other, limit = (high, low, "at least") if high in given else (low, high, "at most")
    value = (
        show_given(other, given[other].value)
        if other in given
        else show(other, Settings.model_fields[other].default)
    )
    return name, f"{limit} {other.upper()} ({value}) is expected"
