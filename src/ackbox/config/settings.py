"""Every setting, its default and its allowed values. The reference page explains each setting."""

from datetime import timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from ackbox.config.value_types import (
    address,
    duration,
    file_path,
    folder_path,
    host_name,
    number,
    one_of,
    schema_name,
    site,
    size,
    switch,
    token,
    whole_number,
)

Durability = Literal["full", "normal"]
LogFormat = Literal["auto", "pretty", "json"]
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"]
Pooling = Literal["session", "transaction"]
MetricsAccess = Literal["token", "open"]
RetryJitter = Literal["full", "none"]
RetryStrategy = Literal["exponential", "linear", "constant"]
Unhandled = Literal["complete", "park"]

# (setting, the other setting that it must not be smaller than)
_ORDERED = (
    ("max_batch_bytes", "max_body_bytes"),
    ("ingest_buffer_bytes", "max_body_bytes"),
    ("retry_max_delay", "retry_base_delay"),
)
_ADVISED_TOKEN_LENGTH = 16
_DISTINCT_TOKENS = (
    ("INGEST_TOKEN", "API_TOKEN", "whoever may send may also read and operate"),
    ("INGEST_TOKEN", "READ_TOKEN", "whoever may send may also read"),
    ("READ_TOKEN", "API_TOKEN", "whoever may read may also operate"),
)


class Settings(BaseModel):
    """The settings of one process. A field has the name of its variable, in lower case.

    The constructor reads neither the environment nor a file: fields that are not given have their
    defaults. Users override settings with `Inbox(settings={...})`, which keeps the environment.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True
    )

    host: Annotated[str, host_name()] = "127.0.0.1"
    port: Annotated[int, whole_number(0, 65535)] = 8000
    max_body_bytes: Annotated[int, size("1B", "512MiB")] = 1 << 20
    max_batch_bytes: Annotated[int, size("1B", "64GiB")] = 16 << 20
    max_batch_lines: Annotated[int, whole_number(1, 1_000_000)] = 10_000
    api_token: Annotated[SecretStr | None, token()] = None
    read_token: Annotated[SecretStr | None, token()] = None
    ingest_token: Annotated[SecretStr | None, token()] = None
    metrics_access: Annotated[MetricsAccess, one_of(MetricsAccess)] = "token"
    shutdown_grace: Annotated[timedelta, duration("0s", "1d")] = timedelta(seconds=20)

    db_path: Annotated[Path, file_path()] = Path("ackbox.db")
    backup_dir: Annotated[Path | None, folder_path()] = None
    durability: Annotated[Durability, one_of(Durability)] = "full"
    database_url: Annotated[
        SecretStr | None, address("postgresql", "postgres", unset="unset means SQLite")
    ] = None
    database_schema: Annotated[str, schema_name()] = "ackbox"
    database_pooling: Annotated[Pooling, one_of(Pooling)] = "session"
    notify: Annotated[bool, switch()] = True
    queue_url: Annotated[
        SecretStr | None, address("redis", "rediss", unset="unset means the database")
    ] = None

    ingest_buffer: Annotated[int, whole_number(1, 1_000_000)] = 5000
    ingest_buffer_bytes: Annotated[int, size("1B", "64GiB")] = 64 << 20
    ingest_timeout: Annotated[timedelta, duration("1ms", "1h")] = timedelta(seconds=5)
    queue_maxsize: Annotated[int, whole_number(1, 1_000_000_000)] = 100_000

    worker_count: Annotated[int, whole_number(0, 10_000)] = 10
    claim_batch_size: Annotated[int, whole_number(1, 10_000)] = 100
    claim_timeout: Annotated[timedelta, duration("1s", "1d")] = timedelta(seconds=30)
    unhandled: Annotated[Unhandled, one_of(Unhandled)] = "complete"

    max_attempts: Annotated[int, whole_number(1, 1000)] = 5
    retry_strategy: Annotated[RetryStrategy, one_of(RetryStrategy)] = "exponential"
    retry_base_delay: Annotated[timedelta, duration("0s", "365d")] = timedelta(seconds=5)
    retry_max_delay: Annotated[timedelta, duration("0s", "365d")] = timedelta(seconds=300)
    retry_jitter: Annotated[RetryJitter, one_of(RetryJitter)] = "full"
    snooze_max_age: Annotated[timedelta, duration("0s", "365d")] = timedelta(days=7)

    # At least 1: some readers would take 0 for "never", others for "at once".
    retention_days: Annotated[float, number(1, 36500)] = 30
    dead_letter_retention_days: Annotated[
        float | None, number(1, 36500, unset="unset means RETENTION_DAYS")
    ] = None
    dedupe_days: Annotated[float, number(0, 36500)] = 7
    quarantine_bytes: Annotated[int, size("0B", "64GiB")] = 64 << 20
    quarantine_days: Annotated[float, number(1, 36500)] = 7
    cleanup_interval_hours: Annotated[float, number(0.001, 8760)] = 1

    log_level: Annotated[LogLevel, one_of(LogLevel)] = "INFO"
    log_format: Annotated[LogFormat, one_of(LogFormat)] = "auto"
    docs_url: Annotated[SecretStr | None, site(unset="unset means pages without an address")] = None

    @model_validator(mode="after")
    def _agree(self) -> Self:
        for high, low in _ORDERED:
            if getattr(self, high) < getattr(self, low):
                raise PydanticCustomError(
                    "disagree", "{high} must be at least {low}", {"high": high, "low": low}
                )
        return self


def choose_log_format(chosen: LogFormat, *, isatty: bool) -> Literal["pretty", "json"]:
    """Resolve `auto`: `pretty` on a terminal, which people read, else `json`."""
    if chosen == "auto":
        return "pretty" if isatty else "json"
    return chosen


def warn_of_open_ingest(settings: Settings) -> list[str]:
    """Return a line if other machines can send events without a token (S16)."""
    if settings.ingest_token is not None or is_loopback(settings.host):
        return []
    return [
        f"Other machines can send events without a token (HOST={settings.host}): set "
        "ACKBOX_INGEST_TOKEN, or have a proxy in front check the senders."
    ]


def cautions(settings: Settings) -> list[str]:
    """Return a line for each setting that is allowed but unwise. No line contains a secret."""
    tokens = {
        "API_TOKEN": settings.api_token,
        "READ_TOKEN": settings.read_token,
        "INGEST_TOKEN": settings.ingest_token,
    }
    lines = [
        f"{name} is short: at least {_ADVISED_TOKEN_LENGTH} random characters are advised."
        for name, secret in tokens.items()
        if secret is not None and len(secret) < _ADVISED_TOKEN_LENGTH
    ]
    for weaker, stronger, may in _DISTINCT_TOKENS:
        if tokens[stronger] is not None and tokens[stronger] == tokens[weaker]:
            lines.append(f"{stronger} equals {weaker}: {may}.")
    return lines


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches the host; False for names that are not known."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
