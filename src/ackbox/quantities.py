"""Durations (`1h30m`) and sizes (`64MiB`): strict parsers, and the text that they read back."""

import re
from datetime import timedelta

_DURATION = re.compile(
    r"(?=[0-9])"
    r"(?:(?P<days>[0-9]{1,18})d)?"
    r"(?:(?P<hours>[0-9]{1,18})h)?"
    r"(?:(?P<minutes>[0-9]{1,18})m)?"
    r"(?:(?P<seconds>[0-9]{1,18})s)?"
    r"(?:(?P<milliseconds>[0-9]{1,18})ms)?"
)
_SIZE = re.compile(r"(?P<count>[0-9]{1,18})(?P<unit>[A-Za-z]*)")
_DURATION_UNITS = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
# `show_size` takes the first unit that fits: binary before decimal, large before small.
_SIZE_UNITS = {
    "GiB": 1 << 30,
    "MiB": 1 << 20,
    "KiB": 1 << 10,
    "GB": 10**9,
    "MB": 10**6,
    "KB": 10**3,
    "kB": 10**3,
    "B": 1,
    "": 1,
}


def parse_duration(text: str) -> timedelta:
    """Parse `500ms`, `5s`, `1h30m` or `0`; a ValueError says how to write it instead."""
    if text == "0":
        return timedelta()
    if re.fullmatch(r"[0-9]+", text):
        raise ValueError("add a unit: ms, s, m, h or d, as in 5s")
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("write it as 500ms, 5s or 1h30m: units d, h, m, s, ms in this order")
    try:
        return timedelta(**{unit: int(count) for unit, count in match.groupdict("0").items()})
    except OverflowError:
        raise ValueError("that is longer than can be counted") from None


def show_duration(duration: timedelta) -> str:
    """Write a duration so that `parse_duration` reads it back, to the millisecond."""
    parts = []
    for name, unit in _DURATION_UNITS.items():
        count, duration = divmod(duration, unit)
        if count:
            parts.append(f"{count}{name}")
    return "".join(parts) or "0s"


def parse_size(text: str) -> int:
    """Parse `64MiB`, `1MB` or a number of bytes; a ValueError says how to write it instead."""
    match = _SIZE.fullmatch(text)
    if match is None or match["unit"] not in _SIZE_UNITS:
        raise ValueError("write it as 64MiB, 1MB or a number of bytes: KiB, MiB, GiB, KB, MB, GB")
    return int(match["count"]) * _SIZE_UNITS[match["unit"]]


def show_size(size: int) -> str:
    """Write a size so that `parse_size` reads back the same number of bytes."""
    for name, unit in _SIZE_UNITS.items():
        if size >= unit and size % unit == 0:
            return f"{size // unit}{name}"
    return f"{size}B"
