"""Settings: the environment, over a TOML file, over defaults (W16, P8).

The only part of ackbox that reads the environment or a settings file. Whatever is wrong there is
an `errors.SettingError` of one line that names the variable, the value and what is allowed.

    allowed      what a value may be
    settings     every setting, its default and its range
    files        the TOML file
    loading      both places, or one line about what is wrong there
    addresses    URLs, which may carry a password
    showing      values as text, without secrets
    origins      each setting as `ackbox config` shows it, and where it came from
"""

from ackbox.config.addresses import show_address
from ackbox.config.loader import load, load_from_process
from ackbox.config.origins import SettingOrigin, explain, explain_process
from ackbox.config.settings import (
    Settings,
    cautions,
    choose_log_format,
    warn_of_open_ingest,
)
from ackbox.quantities import parse_duration, parse_size, show_duration, show_size

__all__ = [
    "SettingOrigin",
    "Settings",
    "cautions",
    "choose_log_format",
    "explain",
    "explain_process",
    "load",
    "load_from_process",
    "parse_duration",
    "parse_size",
    "show_address",
    "show_duration",
    "show_size",
    "warn_of_open_ingest",
]
