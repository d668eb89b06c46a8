"""The names of settings: fields in code and in the file, variables in the environment."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from ackbox.config.display import show_text
from ackbox.config.settings import Settings
from ackbox.documentation import name_page
from ackbox.errors import SettingError

PREFIX = "ACKBOX_"
FILE_VARIABLE = "ACKBOX_CONFIG"
IMAGE_VARIABLE = "ACKBOX_IMAGE_DEFAULTS"
"""The variables that the container image sets, as `NAME=value,NAME=value`."""

# Kubernetes describes a Service named `ackbox` or `ackbox-...` to every pod by such variables.
_SERVICE_LINK = re.compile(
    r"ACKBOX(_\w+)?_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_[0-9]+_(TCP|UDP|SCTP)(_\w+)?)"
)
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://.*")


def prefixed(field: str) -> str:
    return PREFIX + field.upper()


def by_field(settings: Mapping[Any, object], origin: str) -> dict[str, object]:
    """Return the settings of the settings file, or of the code, by field name."""
    fields: dict[str, object] = {}
    for key, value in settings.items():
        field = _find_field(key, origin)
        if field in fields:
            raise SettingError(f"{field.upper()} is given twice in {show_text(origin)}: keep one.")
        fields[field] = value
    return fields


def _find_field(key: object, origin: str) -> str:
    if not isinstance(key, str):
        raise SettingError(
            f"{key!r} in {show_text(origin)} is not a setting: a name such as 'max_attempts' is "
            "expected."
        )
    field = key.lower()
    if field in Settings.model_fields and key in {field, field.upper()}:
        return field
    fallback = f"remove it. For all settings, see {name_page('reference/settings')}."
    remedy = _suggest(field, Settings.model_fields) or fallback
    raise SettingError(f"{show_text(key)} in {show_text(origin)} is not a setting: {remedy}")


def without_service_links(environ: Mapping[str, str]) -> dict[str, str]:
    """Leave out variables that Kubernetes sets by itself, such as
    `ACKBOX_PORT=tcp://10.0.0.1:8000`, which is no port."""
    return {name: value for name, value in environ.items() if not _is_service_link(name, value)}


def prefixed_variables(environ: Mapping[str, str]) -> list[str]:
    """Return the variables with our prefix; raise `SettingError` if one of them is no setting."""
    variables = sorted(
        name for name in environ if name.upper().startswith(PREFIX) and name != IMAGE_VARIABLE
    )
    known = {FILE_VARIABLE, *map(prefixed, Settings.model_fields)}
    for name in variables:
        if name not in known:
            raise SettingError(_refuse_variable(name))
    return variables


def is_image_default(environ: Mapping[str, str], variable: str) -> bool:
    """Return whether the variable still has the value that the container image gave it: then no
    other application owns the variable."""
    return f"{variable}={environ[variable]}" in environ.get(IMAGE_VARIABLE, "").split(",")


def _refuse_variable(name: str) -> str:
    names = {*map(str.upper, Settings.model_fields), FILE_VARIABLE.removeprefix(PREFIX)}
    shown = show_text(name)
    remedy = _suggest(name[len(PREFIX) :].upper(), names, PREFIX)
    fallback = f"unset it. `env -u {shown} ackbox config` lists all settings."
    return f"{shown} in the environment is not a setting: {remedy or fallback}"


def _suggest(name: str, known: Iterable[str], prefix: str = "") -> str | None:
    nearest = get_close_matches(name, known, n=1)
    return f"did you mean {prefix}{nearest[0]}?" if nearest else None


def _is_service_link(name: str, value: str) -> bool:
    if _SERVICE_LINK.fullmatch(name):
        return True
    is_port = name.startswith(PREFIX) and name.endswith("_PORT")
    return is_port and _SERVICE_ADDRESS.fullmatch(value) is not None
