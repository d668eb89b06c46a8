"""Settings: command line over code, environment, TOML file and defaults, in this order (W16, P8).

Only this package reads the environment or a settings file. A mistake there raises an
`errors.SettingError`: one line that names the variable, its value and the allowed values.

    value_types  the allowed values of a setting, and how they are read
    settings     every setting, its default and its range
    names        variables with and without our prefix, and misspelt names
    files        the TOML file
    sources      the tables of sources in it, and the secrets that they refer to
    loader       all of these resolved to `Settings`, with the origin of each value
    addresses    URLs, which may carry a password
    display      values as text, without secrets
    origins      each setting as `ackbox config` shows it, with its origin
"""

from ackbox.config.addresses import show_address
from ackbox.config.loader import (
    Given,
    Resolved,
    load,
    load_from_process,
    read_overrides,
    resolve_process,
)
from ackbox.config.origins import explain, explain_process
from ackbox.config.settings import (
    Settings,
    cautions,
    choose_log_format,
    warn_of_open_ingest,
)
from ackbox.config.sources import SourceTable, read_secret

__all__ = [
    "Given",
    "Resolved",
    "Settings",
    "SourceTable",
    "cautions",
    "choose_log_format",
    "explain",
    "explain_process",
    "load",
    "load_from_process",
    "read_overrides",
    "read_secret",
    "resolve_process",
    "show_address",
    "warn_of_open_ingest",
]
