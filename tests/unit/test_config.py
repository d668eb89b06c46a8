"""W16 (settings by environment and TOML) and P8 (batch, claim, back-off and retries among them)."""

import os
import re
import subprocess
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from ackbox import config
from ackbox.config import Settings
from ackbox.config.loader import resolve
from ackbox.errors import SettingError
from ackbox.quantities import parse_duration, parse_size, show_duration, show_size

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
PASSWORD = "hunter2-hunter2-hunter2"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def refusal(folder: Path, **environ: str) -> str:
    """Return the line with which these variables are refused."""
    with pytest.raises(SettingError) as caught:
        config.load(environ, directory=folder)
    line = str(caught.value)
    assert line.isprintable(), "one line, for any terminal"
    return line


def refusal_of_file(folder: Path, content: str | bytes) -> str:
    raw = content if isinstance(content, bytes) else content.encode()
    (folder / "ackbox.toml").write_bytes(raw)
    return refusal(folder)


# Where values come from


def test_defaults_are_those_of_the_design(folder: Path) -> None:  # W16
    settings = config.load({}, directory=folder)
    assert (settings.host, settings.port) == ("127.0.0.1", 8000)
    assert settings.db_path == Path("ackbox.db")
    assert (settings.ingest_buffer, settings.ingest_buffer_bytes) == (5000, 64 * 1024 * 1024)
    assert (settings.max_body_bytes, settings.max_batch_bytes) == (1 << 20, 16 << 20)
    assert settings.ingest_timeout == timedelta(seconds=5)
    assert settings.durability == "full"
    assert settings.database_url is settings.queue_url is None
    assert settings.api_token is settings.ingest_token is None


def test_batch_size_claim_timeout_backoff_and_retries_are_settings(folder: Path) -> None:  # P8
    environ = {
        "CLAIM_BATCH_SIZE": "7",
        "CLAIM_TIMEOUT": "1m30s",
        "RETRY_STRATEGY": "linear",
        "RETRY_BASE_DELAY": "250ms",
        "RETRY_MAX_DELAY": "2h",
        "MAX_ATTEMPTS": "9",
    }
    settings = config.load(environ, directory=folder)
    assert (settings.claim_batch_size, settings.max_attempts) == (7, 9)
    assert settings.claim_timeout == timedelta(seconds=90)
    assert settings.retry_strategy == "linear"
    assert settings.retry_base_delay == timedelta(milliseconds=250)
    assert settings.retry_max_delay == timedelta(hours=2)


def test_the_environment_wins_over_the_file_and_the_file_over_the_default(
    folder: Path,
) -> None:  # W16
    (folder / "ackbox.toml").write_text('port = 9000\nhost = "::1"\n')
    settings = config.load({"PORT": "9001"}, directory=folder)
    assert (settings.port, settings.host, settings.worker_count) == (9001, "::1", 10)


def test_the_file_takes_names_in_either_case_and_native_values(folder: Path) -> None:
    (folder / "ackbox.toml").write_text(
        'PORT = 9000\nnotify = false\nretention_days = 1.5\nMAX_BODY_BYTES = "512KiB"\n'
        "max_batch_bytes = 1000000\nshutdown_grace = 0\n"
    )
    settings = config.load({}, directory=folder)
    assert (settings.port, settings.notify, settings.retention_days) == (9000, False, 1.5)
    assert (settings.max_body_bytes, settings.max_batch_bytes) == (512 * 1024, 10**6)
    assert settings.shutdown_grace == timedelta()


def test_ackbox_config_names_another_file(folder: Path) -> None:
    (folder / "ackbox.toml").write_text("port = 1")
    (folder / "other.toml").write_text("port = 2")
    assert config.load({"ACKBOX_CONFIG": "other.toml"}, directory=folder).port == 2
    absolute = str(folder / "other.toml")
    assert config.load({"ACKBOX_CONFIG": absolute}, directory=folder / "elsewhere").port == 2


def test_a_byte_order_mark_is_accepted(folder: Path) -> None:
    (folder / "ackbox.toml").write_bytes(b"\xef\xbb\xbfport = 9000")
    assert config.load({}, directory=folder).port == 9000


def test_unknown_variables_are_ignored_because_the_environment_is_shared(folder: Path) -> None:
    assert config.load({"PROT": "x", "port": "1", "PATH": "/"}, directory=folder) == Settings()


def test_settings_built_directly_read_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PORT", "9000")
    assert Settings().port == 8000
    assert Settings(port=0, db_path=Path("a b.db"), api_token=SecretStr("t")).port == 0


def test_settings_of_the_process_come_from_its_environment_and_folder(
    monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    for name in (*Settings.model_fields, "ackbox_config"):
        monkeypatch.delenv(name.upper(), raising=False)
    (folder / "ackbox.toml").write_text('port = 9000\nhost = "::1"\n')
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PORT", "9001")
    settings = config.load_from_process()
    assert (settings.port, settings.host) == (9001, "::1")


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        Settings().port = 1  # type: ignore[misc]


def test_importing_settings_reads_neither_environment_nor_file(folder: Path) -> None:
    (folder / "ackbox.toml").write_text("not toml")
    environ = os.environ | {"PORT": "bad", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", "import ackbox.config as c; print(c.Settings().port)"]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, check=True)
    assert done.stdout == b"8000\n"


# What is refused


def test_a_bad_value_is_one_line_that_names_variable_value_and_remedy(folder: Path) -> None:  # W16
    assert refusal(folder, PORT="70000") == (
        "PORT=70000 in the environment is not valid: a whole number from 0 to 65535 is expected."
    )
    assert refusal_of_file(folder, "PORT = 70000") == (
        "PORT=70000 in ackbox.toml is not valid: a whole number from 0 to 65535 is expected."
    )


def test_a_bare_number_is_no_duration_and_the_line_says_to_add_a_unit(folder: Path) -> None:
    expected = (
        "is not valid: a duration from 1ms to 1h is expected "
        "(add a unit: ms, s, m, h or d, as in 5s)."
    )
    assert refusal(folder, INGEST_TIMEOUT="5") == f"INGEST_TIMEOUT=5 in the environment {expected}"
    assert refusal_of_file(folder, "ingest_timeout = 5").endswith(expected)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("PORT", bad) for bad in ("-1", "65536", "8000.0", "8_000", " 8000", "+1", "٣", "0x10")],
        *[("PORT", bad) for bad in ("", "9" * 5000, "a\nb", "\udc80", "\x1b[31m")],
        *[("HOST", bad) for bad in ("", "0", "127.1", "a:80", "[::1]", "http://a", "0x7f.0x1")],
        *[("HOST", bad) for bad in ("a b", "*", "256.1.1.1", "-a\n", "::1%\n")],
        ("WORKER_COUNT", "-1"),
        ("QUEUE_MAXSIZE", "0"),
        ("CLAIM_TIMEOUT", "999ms"),
        ("MAX_ATTEMPTS", "0"),
        ("MAX_BODY_BYTES", "0"),
        ("MAX_BODY_BYTES", "513MiB"),
        ("MAX_BODY_BYTES", "64Mi"),
        *[("RETENTION_DAYS", bad) for bad in ("0", "nan", "inf", "1e3", "-1", "30d")],
        *[("DEAD_LETTER_RETENTION_DAYS", bad) for bad in ("", "0", "none", "30d")],
        ("DEDUPE_DAYS", "-0.5"),
        ("CLEANUP_INTERVAL_HOURS", "0"),
        *[("DB_PATH", bad) for bad in ("", ":memory:", "file:a.db", "data/", ".", "..", "a\0b")],
        *[("DURABILITY", bad) for bad in ("", "off", "ful")],
        ("NOTIFY", "maybe"),
        ("LOG_LEVEL", "TRACE"),
        ("LOG_FORMAT", "xml"),
        *[("DATABASE_URL", bad) for bad in ("", "a.db", "sqlite:///a.db", "postgresql:/h/d")],
        *[("DATABASE_URL", bad) for bad in ("postgresql://u:p/w@h/d", "postgresql://h:port/d")],
        ("DATABASE_URL", "postgresql://h/d\x7f"),
        *[("DOCS_URL", bad) for bad in ("https://h/docs?v=2", "https://h/docs?", "https://h/#top")],
        *[("DATABASE_URL", bad) for bad in ("postgresql://h:65536/d", "postgresql://a:99999,b/d")],
        ("QUEUE_URL", "postgresql://h"),
    ],
)
def test_a_value_out_of_range_or_misspelt_is_refused(folder: Path, name: str, value: str) -> None:
    line = refusal(folder, **{name: value})
    assert re.match(rf"{name}=.+ in the environment is not valid: .+ (is|are) expected", line)
    assert len(line) < 300


@pytest.mark.parametrize(
    "line",
    [
        "port = true",
        "port = 8000.0",
        "port = [8000]",
        "port = {}",
        "port = 0x" + "f" * 5000,
        "host = 1",
        "db_path = false",
        "db_path = 1979-05-27",
        "log_level = 10",
        "notify = 1",
        "max_body_bytes = -1",
        "max_body_bytes = 1.5",
        "max_body_bytes = true",
        "max_body_bytes = 0x" + "f" * 5000,
        "ingest_timeout = 1.5",
        "ingest_timeout = false",
        "ingest_timeout = 00:00:05",
        "retention_days = nan",
        "retention_days = true",
        "retention_days = 0x" + "f" * 5000,
        "api_token = 12345",
        "database_url = []",
        'port = "8000 "',
    ],
)
def test_a_value_of_the_wrong_kind_in_the_file_is_refused(folder: Path, line: str) -> None:
    name = line.split(maxsplit=1)[0].upper()
    assert refusal_of_file(folder, line).startswith(f"{name}=")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[("HOST", good) for good in ("0.0.0.0", "::", "fe80::1%eth0", "localhost", "a-1.b_c")],
        *[("HOST", good) for good in ("4f3a2b1c0d9e", "7.example")],
        ("DATABASE_URL", "postgresql:///d?host=/run"),
        ("DATABASE_URL", "postgres://u:p%2Fw@[::1]:5432,h2:5433/d"),
        ("QUEUE_URL", "rediss://:p@h:6379/0"),
        ("PORT", "0"),
        ("WORKER_COUNT", "0"),
        ("MAX_BODY_BYTES", "1"),
        ("DB_PATH", "/data/événements 1.db"),
    ],
)
def test_an_allowed_value_is_kept_as_it_is(folder: Path, name: str, value: str) -> None:
    kept = getattr(config.load({name: value}, directory=folder), name.lower())
    assert value == (kept.get_secret_value() if isinstance(kept, SecretStr) else str(kept))


def test_names_are_accepted_in_either_case(folder: Path) -> None:
    environ = {"LOG_LEVEL": "warning", "DURABILITY": "NORMAL", "NOTIFY": "Off"}
    settings = config.load(environ, directory=folder)
    assert (settings.log_level, settings.durability, settings.notify) == (
        "WARNING",
        "normal",
        False,
    )


@pytest.mark.parametrize(
    ("environ", "line"),
    [
        (
            {"MAX_BATCH_BYTES": "1KiB"},
            "MAX_BATCH_BYTES=1KiB in the environment is not valid: "
            "at least MAX_BODY_BYTES (1MiB) is expected.",
        ),
        (
            {"MAX_BODY_BYTES": "32MiB"},
            "MAX_BODY_BYTES=32MiB in the environment is not valid: "
            "at most MAX_BATCH_BYTES (16MiB) is expected.",
        ),
        (
            {"INGEST_BUFFER_BYTES": "1MB", "MAX_BODY_BYTES": "2MB"},
            "INGEST_BUFFER_BYTES=1MB in the environment is not valid: "
            "at least MAX_BODY_BYTES (2MB) is expected.",
        ),
        (
            {"RETRY_BASE_DELAY": "10m"},
            "RETRY_BASE_DELAY=10m in the environment is not valid: "
            "at most RETRY_MAX_DELAY (5m) is expected.",
        ),
    ],
)
def test_of_two_settings_that_disagree_the_line_names_one_that_was_given(
    folder: Path, environ: dict[str, str], line: str
) -> None:
    assert refusal(folder, **environ) == line


def test_only_the_first_of_several_bad_values_is_reported(folder: Path) -> None:
    assert refusal(folder, WORKER_COUNT="x", PORT="y").startswith("PORT=y ")


def test_a_file_value_that_the_environment_overrides_is_not_checked(folder: Path) -> None:
    (folder / "ackbox.toml").write_text('port = "bad"')
    assert config.load({"PORT": "1"}, directory=folder).port == 1


# The file


def test_an_unknown_key_in_the_file_is_refused_with_the_nearest_known_one(folder: Path) -> None:
    assert refusal_of_file(folder, "workers_count = 1") == (
        "workers_count in ackbox.toml is not a setting: did you mean worker_count?"
    )
    assert refusal_of_file(folder, "Port = 1").endswith("did you mean port?")
    assert refusal_of_file(folder, "[zzz]\nport = 1") == (
        "zzz in ackbox.toml is not a setting: remove it. For all settings, see "
        "the documentation page reference/settings."
    )
    assert refusal_of_file(folder, '"a\\nb" = 1').startswith("a\\nb in ackbox.toml")


def test_a_list_or_table_is_abbreviated(folder: Path) -> None:
    assert refusal_of_file(folder, "port = [1, 2]").startswith("PORT=[...] in ackbox.toml")
    assert refusal_of_file(folder, "[port]\na = 1").startswith("PORT={...} in ackbox.toml")


def test_one_setting_in_both_cases_is_refused(folder: Path) -> None:
    line = refusal_of_file(folder, "port = 1\nPORT = 2")
    assert line == "PORT is given twice in ackbox.toml: keep one."


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"port = 1\nhost = \n", "ackbox.toml is not valid TOML: .*at line 2, column 8"),
        (b"port = 1\nport = 2\n", "ackbox.toml is not valid TOML: .*at line 2"),
        (b"port = 1\nx = [", "ackbox.toml is not valid TOML: .*at line 2"),
        (b"port = 1\n\nhost = '\xff'", "ackbox.toml is not valid UTF-8 at line 3: "),
        (b"port = " + b"9" * 5000, "ackbox.toml is not valid TOML: "),
        (b"port = " + b"[" * 100_000, "ackbox.toml is not valid TOML: it is nested too deep"),
    ],
)
def test_a_broken_file_is_one_line_that_says_where(
    folder: Path, content: bytes, message: str
) -> None:
    assert re.match(message, refusal_of_file(folder, content))


def test_a_named_file_must_exist(folder: Path) -> None:
    assert refusal(folder, ACKBOX_CONFIG="gone.toml") == (
        "gone.toml cannot be read: No such file or directory. "
        "ACKBOX_CONFIG is the path of a TOML file; unset means ackbox.toml if present."
    )
    assert refusal(folder, ACKBOX_CONFIG="").startswith('"" cannot be read: ')
    assert refusal(folder, ACKBOX_CONFIG="a\0b").startswith("a\\x00b cannot be read: ")


def test_a_default_file_that_cannot_be_read_is_not_ignored(folder: Path) -> None:
    (folder / "ackbox.toml").symlink_to(folder / "gone")
    assert refusal(folder).startswith("ackbox.toml cannot be read: No such file")
    (folder / "ackbox.toml").unlink()
    (folder / "ackbox.toml").mkdir()
    assert refusal(folder).startswith("ackbox.toml cannot be read: Is a directory")


# Secrets


def test_an_empty_token_is_refused_and_does_not_mean_unset(folder: Path) -> None:
    for name in ("API_TOKEN", "INGEST_TOKEN"):
        assert refusal(folder, **{name: ""}) == (
            f'{name}="" in the environment is not valid: visible ASCII characters, 1 to 4096, '
            "are expected; unset means none."
        )


@pytest.mark.parametrize("token", ["with space", "ünïcode", "tab\t", "\udc80", "x" * 4097])
def test_a_token_that_no_header_can_carry_is_refused_and_not_shown(
    folder: Path, token: str
) -> None:
    assert refusal(folder, API_TOKEN=token).startswith("API_TOKEN=*** in the environment")


@pytest.mark.parametrize(
    "address",
    [
        f"mysql://u:{PASSWORD}@h/d",
        f"postgresql://u:{PASSWORD}/x@h/d",
        f"postgresql://u:{PASSWORD}@h:port/d",
        f"postgresql://u:{PASSWORD}",
        f" postgresql://u:{PASSWORD}@h",
        f"u:{PASSWORD}@h",
        f"{PASSWORD}://h",
        PASSWORD,
    ],
)
def test_a_refused_address_does_not_reveal_its_password(folder: Path, address: str) -> None:
    assert PASSWORD not in refusal(folder, DATABASE_URL=address)
    assert PASSWORD not in refusal_of_file(folder, f'queue_url = ["{address}"]')


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (f"postgresql://u:{PASSWORD}@h:1/d", "postgresql://u:***@h:1/d"),
        (f"postgresql://u:@{PASSWORD}@@h/d", "postgresql://u:***@h/d"),
        (f"postgresql://u@h/d?sslmode=require&password={PASSWORD}", None),
        (f"postgresql:///d?sslpassword={PASSWORD}&{PASSWORD}", None),
        ("postgresql://u@h/d?sslmode=require", "postgresql://u@h/d?sslmode=require"),
        # S19
        (f"postgresql://u:1/{PASSWORD}@h/d", "postgresql://***"),
        (f"postgresql://u:1?db={PASSWORD}@h/d", "postgresql://u:1?db=***"),
    ],
)
def test_an_address_is_shown_without_its_passwords(
    folder: Path, address: str, shown: str | None
) -> None:
    rows = config.explain({"DATABASE_URL": address}, directory=folder)
    row = next(row for row in rows if row.name == "DATABASE_URL")
    assert PASSWORD not in row.value
    assert row.value == (shown or row.value)
    assert "***" in row.value or shown == address


# S19
@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (f"redis://{PASSWORD}@h:6379/0", "redis://***@h:6379/0"),
        (f"rediss://{PASSWORD}@h", "rediss://***@h"),
        (f"redis://u:{PASSWORD}@h", "redis://u:***@h"),
        (f"redis://:{PASSWORD}@h", "redis://:***@h"),
        (f"redis://1/{PASSWORD}@h", "redis://***"),
        ("redis://h:6379/0", "redis://h:6379/0"),
    ],
)
def test_a_redis_address_is_shown_without_its_token(folder: Path, address: str, shown: str) -> None:
    rows = config.explain({"QUEUE_URL": address}, directory=folder)
    assert next(row.value for row in rows if row.name == "QUEUE_URL") == shown


def test_secrets_do_not_leak_from_settings_or_from_errors(folder: Path) -> None:
    environ = {
        "API_TOKEN": PASSWORD,
        "INGEST_TOKEN": PASSWORD,
        "DATABASE_URL": f"postgresql://u:{PASSWORD}@h/d",
        "QUEUE_URL": f"redis://:{PASSWORD}@h",
    }
    settings = config.load(environ, directory=folder)
    assert PASSWORD not in f"{settings!r} {settings} {settings.model_dump_json()}"
    assert PASSWORD not in str(config.explain(environ, directory=folder))
    assert PASSWORD not in repr(resolve(environ, directory=folder))
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({"api_token": f"{PASSWORD} {PASSWORD}"})
    assert PASSWORD not in str(caught.value)


def test_an_unwise_token_is_allowed_with_a_caution() -> None:
    long, short = SecretStr("x" * 16), SecretStr("x" * 15)
    assert config.cautions(Settings(api_token=long)) == []
    assert [
        line.split(maxsplit=1)[0] for line in config.cautions(Settings(ingest_token=short))
    ] == ["INGEST_TOKEN"]
    assert "API_TOKEN equals" in config.cautions(Settings(api_token=long, ingest_token=long))[0]


# What is shown


def test_explain_names_value_and_origin_of_every_setting(folder: Path) -> None:  # W16
    (folder / "ackbox.toml").write_text('port = 9000\ningest_timeout = "1h0m"\n')
    environ = {"MAX_BODY_BYTES": "2048", "API_TOKEN": PASSWORD, "PORT": "9001"}
    rows = {row.name: row for row in config.explain(environ, directory=folder)}
    assert set(rows) == {name.upper() for name in Settings.model_fields} | {"ACKBOX_CONFIG"}

    def shown(name: str) -> tuple[str, str, bool]:
        return rows[name].value, rows[name].origin, rows[name].secret

    assert shown("PORT") == ("9001", "environment", False)
    assert shown("INGEST_TIMEOUT") == ("1h", "ackbox.toml", False)
    assert shown("MAX_BODY_BYTES") == ("2KiB", "environment", False)
    assert shown("INGEST_BUFFER_BYTES") == ("64MiB", "default", False)
    assert shown("NOTIFY") == ("on", "default", False)
    assert shown("RETENTION_DAYS") == ("30", "default", False)
    assert shown("API_TOKEN") == ("***", "environment", True)
    assert shown("DATABASE_URL") == ("unset", "default", True)
    assert shown("ACKBOX_CONFIG") == ("ackbox.toml", "default", False)


def test_explain_says_which_file_was_read(folder: Path) -> None:
    assert config.explain({}, directory=folder)[-1].value == "unset"
    (folder / "my.toml").write_text("port = 1")
    rows = config.explain({"ACKBOX_CONFIG": "my.toml"}, directory=folder)
    assert (rows[-1].value, rows[-1].origin) == ("my.toml", "environment")
    assert next(row.origin for row in rows if row.name == "PORT") == "my.toml"


def test_the_shown_value_of_a_setting_reads_back_as_the_same(folder: Path) -> None:
    given = {"CLAIM_TIMEOUT": "90s", "MAX_BODY_BYTES": "1000", "DEDUPE_DAYS": "0.5"}
    rows = config.explain(given, directory=folder)
    again = {row.name: row.value for row in rows if row.value != "unset"}
    assert config.load(again, directory=folder) == config.load(given, directory=folder)


def test_auto_logs_are_pretty_on_a_terminal_and_json_elsewhere() -> None:
    assert config.choose_log_format("auto", isatty=True) == "pretty"
    assert config.choose_log_format("auto", isatty=False) == "json"
    assert config.choose_log_format("json", isatty=True) == "json"
    assert config.choose_log_format("pretty", isatty=False) == "pretty"


# Durations and sizes


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("0", 0),
        ("0s", 0),
        ("500ms", 500),
        ("5s", 5000),
        ("90m", 5_400_000),
        ("1h30m", 5_400_000),
        ("1m1ms", 60_001),
        ("1d2h3m4s5ms", 93_784_005),
    ],
)
def test_a_duration_reads_as_it_is_written(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == timedelta(milliseconds=milliseconds)


@pytest.mark.parametrize(
    "text",
    [
        *[
            "",
            "5",
            "00",
            "s",
            "-5s",
            "+5s",
            "1.5s",
            "5 s",
            " 5s",
            "5s\n",
            "5S",
            "1M",
            "5sec",
            "nan",
        ],
        *["30m1h", "1s1s", "1ms1s", "1_0s", "٣s", "1e3s", "1y", "999999999999d", "9" * 5000 + "s"],
    ],
)
def test_a_malformed_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(add a unit|write it as|that is longer)"):
        parse_duration(text)


@pytest.mark.parametrize(
    "text",
    ["", "MiB", "-1", "+1", "1.5MiB", "1 MiB", "1MiB\n", "1mib", "1Mb", "1Mi", "1TiB", "1_0", "٣"],
)
def test_a_malformed_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^write it as"):
        parse_size(text)


@given(st.integers(0, timedelta.max // timedelta(milliseconds=1)))
def test_any_duration_survives_being_written_and_read(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)
    assert parse_duration(show_duration(duration)) == duration


@given(st.integers(0, 2**50) | st.integers(0, 2**20).map(lambda n: n * 1024))
def test_any_size_survives_being_written_and_read(size: int) -> None:
    assert parse_size(show_size(size)) == size


@given(st.integers(0, 10**9), st.sampled_from([("K", 1), ("M", 2), ("G", 3)]))
def test_binary_units_count_by_1024_and_decimal_ones_by_1000(
    count: int, unit: tuple[str, int]
) -> None:
    letter, power = unit
    assert parse_size(f"{count}{letter}iB") == count * 1024**power
    assert parse_size(f"{count}{letter}B") == count * 1000**power


@given(st.text() | st.from_regex(r"[0-9dhms]*"))
def test_any_text_is_a_quantity_or_a_value_error(text: str) -> None:
    with suppress(ValueError):
        assert parse_duration(text) >= timedelta()
    with suppress(ValueError):
        assert parse_size(text) >= 0


@given(st.dictionaries(st.sampled_from(sorted(Settings.model_fields)), st.text()))
def test_any_environment_gives_settings_or_one_line(environ: dict[str, str]) -> None:
    nowhere = Path(__file__).parent / "no-such-folder"
    line = ""
    try:
        config.load({name.upper(): value for name, value in environ.items()}, directory=nowhere)
    except SettingError as problem:
        line = str(problem)
    assert line.isprintable()


# The reference page


def documented() -> dict[str, tuple[str, str]]:
    """Return the default and the allowed values of each variable on the reference page."""
    row = re.compile(r"^\| `([A-Z_]+)` \| (.+?) \| (.+?) \|", re.MULTILINE)
    rows = row.findall(REFERENCE.read_text("utf-8"))
    assert len({name for name, _, _ in rows}) == len(rows), "each variable is documented once"
    return {name: (default.strip("`"), allowed.replace("`", "")) for name, default, allowed in rows}


def test_the_reference_page_lists_every_setting_with_its_default(folder: Path) -> None:  # W16
    defaults = {row.name: row.value for row in config.explain({}, directory=folder)}
    assert {name: default for name, (default, _) in documented().items()} == defaults
    assert list(documented()) == list(defaults), "in one order"


@pytest.mark.parametrize("name", sorted(documented()))
def test_the_reference_page_and_the_error_agree_on_the_allowed_values(
    folder: Path, name: str
) -> None:
    assert documented()[name][1] in refusal(folder, **{name: "\t"})
