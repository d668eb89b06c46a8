"""N3: `ACKBOX_NAME` wins over `NAME`, misspelt names are refused, code overrides one setting."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from ackbox import Inbox, config
from ackbox.config import Settings
from ackbox.config.loader import Given, Resolved, read_overrides, resolve
from ackbox.config.names import prefixed
from ackbox.errors import SettingError

POSTGRES = "postgresql://db.internal/inbox"
VALUES = {
    "host": ("::1", "::2"),
    "db_path": ("mine.db", "theirs.db"),
    "backup_dir": ("mine", "theirs"),
    "database_url": (POSTGRES, "postgresql://elsewhere/theirs"),
    "database_schema": ("mine", "theirs"),
    "queue_url": ("redis://mine", "redis://theirs"),
    "docs_url": ("https://mine", "https://theirs"),
    "durability": ("normal", "full"),
    "database_pooling": ("transaction", "session"),
    "notify": ("off", "on"),
    "metrics_access": ("open", "token"),
    "unhandled": ("park", "complete"),
    "retry_strategy": ("linear", "constant"),
    "retry_jitter": ("none", "full"),
    "log_level": ("DEBUG", "ERROR"),
    "log_format": ("json", "pretty"),
}
"""Two allowed values of each setting that takes no number; the first is not the default."""


def values_of(name: str) -> tuple[str, str]:
    if name in VALUES:
        return VALUES[name]
    if name.endswith(("_timeout", "_grace", "_delay", "_age")):
        return "6s", "7s"
    if name.endswith("_bytes"):
        return "1500KiB", "1600KiB"
    return "17", "18"


def found(
    folder: Path,
    environ: Mapping[str, str],
    overrides: Mapping[str, Given] | None = None,
    *,
    embedded: bool = False,
) -> Resolved:
    return resolve(environ, directory=folder, overrides=overrides, embedded=embedded)


def refusal(folder: Path, environ: Mapping[str, str], **settings: object) -> str:
    with pytest.raises(SettingError) as caught:
        found(folder, environ, read_overrides(settings, "Inbox(settings=...)"))
    assert str(caught.value).isprintable()
    return str(caught.value)


# N3
@pytest.mark.parametrize("name", Settings.model_fields)
def test_the_prefixed_name_of_every_setting_wins(tmp_path: Path, name: str) -> None:
    mine, theirs = values_of(name)
    chosen = found(tmp_path, {prefixed(name): mine, name.upper(): theirs})
    alone = found(tmp_path, {name.upper(): mine})
    assert chosen.settings == alone.settings != Settings()
    assert chosen.given[name].variable == f"ACKBOX_{name.upper()}"


# N3
def test_a_prefixed_name_wins_over_the_file_too(tmp_path: Path) -> None:
    (tmp_path / "ackbox.toml").write_text("port = 1\n")
    assert found(tmp_path, {"ACKBOX_PORT": "2"}).settings.port == 2


# N3
@pytest.mark.parametrize(
    ("variable", "nearest"),
    [
        ("ACKBOX_PROT", "ACKBOX_PORT"),
        ("ACKBOX_WORKERS_COUNT", "ACKBOX_WORKER_COUNT"),
        ("ACKBOX_DATABASEURL", "ACKBOX_DATABASE_URL"),
        ("ACKBOX_CONFIGS", "ACKBOX_CONFIG"),
        ("ackbox_port", "ACKBOX_PORT"),
    ],
)
def test_an_unknown_prefixed_name_is_refused_with_the_nearest(
    tmp_path: Path, variable: str, nearest: str
) -> None:
    for embedded in (True, False):
        with pytest.raises(SettingError) as caught:
            found(tmp_path, {variable: "1"}, embedded=embedded)
        assert str(caught.value) == (
            f"{variable} in the environment is not a setting: did you mean {nearest}?"
        )


# N3
def test_an_unknown_name_that_resembles_none_is_refused_with_a_way_to_list_them(
    tmp_path: Path,
) -> None:
    assert refusal(tmp_path, {"ACKBOX_ZZZ": "1"}) == (
        "ACKBOX_ZZZ in the environment is not a setting: unset it. "
        "`env -u ACKBOX_ZZZ ackbox config` lists all settings."
    )


# N3
def test_a_bad_value_under_a_prefixed_name_is_refused_by_that_name(tmp_path: Path) -> None:
    line = refusal(tmp_path, {"ACKBOX_PORT": "70000", "PORT": "80"})
    assert line.startswith("ACKBOX_PORT=70000 in the environment is not valid: ")


# N3: a Service named `ackbox` must not keep its own pods from starting.
def test_the_variables_of_a_kubernetes_service_are_no_settings(tmp_path: Path) -> None:
    links = {
        "ACKBOX_SERVICE_HOST": "10.0.0.1",
        "ACKBOX_SERVICE_PORT": "8000",
        "ACKBOX_SERVICE_PORT_HTTP": "8000",
        "ACKBOX_PORT": "tcp://10.0.0.1:8000",
        "ACKBOX_PORT_8000_TCP": "tcp://10.0.0.1:8000",
        "ACKBOX_PORT_8000_TCP_ADDR": "10.0.0.1",
        "ACKBOX_DB_PORT": "tcp://10.0.0.2:5432",
        "ACKBOX_DB_SERVICE_HOST": "10.0.0.2",
    }
    resolved = found(tmp_path, {**links, "DB_PATH": "a.db"})
    assert resolved.settings == Settings(db_path=Path("a.db"))
    assert resolved.warn_of_unprefixed_ledger() == []
    assert "did you mean ACKBOX_PORT?" in refusal(tmp_path, {**links, "ACKBOX_XPORT": "1"})


# N3
def test_an_embedded_inbox_reads_only_the_prefixed_names_and_the_file(tmp_path: Path) -> None:
    (tmp_path / "ackbox.toml").write_text("worker_count = 3\n")
    host = {"DATABASE_URL": POSTGRES, "PORT": "not a port", "LOG_LEVEL": "verbose"}
    settings = found(tmp_path, {**host, "ACKBOX_MAX_ATTEMPTS": "9"}, embedded=True).settings
    assert settings == Settings(worker_count=3, max_attempts=9)


# N3
def test_code_overrides_one_setting_and_leaves_the_others_to_the_environment(
    tmp_path: Path,
) -> None:
    (tmp_path / "ackbox.toml").write_text("worker_count = 3\n")
    overrides = read_overrides({"max_attempts": 3, "CLAIM_TIMEOUT": "9s"}, "Inbox(settings=...)")
    resolved = found(tmp_path, {"ACKBOX_MAX_ATTEMPTS": "4", "PORT": "81"}, overrides)
    settings = resolved.settings
    assert (settings.max_attempts, settings.port, settings.worker_count) == (3, 81, 3)
    assert settings.claim_timeout.total_seconds() == 9


# N3
def test_a_mistake_in_an_override_is_one_line_that_names_it(tmp_path: Path) -> None:
    assert refusal(tmp_path, {}, max_attempts=0) == (
        "MAX_ATTEMPTS=0 in Inbox(settings=...) is not valid: "
        "a whole number from 1 to 1000 is expected."
    )
    assert "***" in refusal(tmp_path, {}, api_token="not a token")
    with pytest.raises(SettingError, match="did you mean max_attempts"):
        Inbox(settings={"max_atempts": 3})


def test_a_setting_that_code_gives_twice_is_refused() -> None:
    with pytest.raises(SettingError, match=r"^PORT is given twice in Inbox\(settings=\.\.\.\)"):
        Inbox(settings={"port": 1, "PORT": 2})


@pytest.mark.parametrize("name", [1, None, b"port"])
def test_the_name_of_a_setting_is_a_text(name: Any) -> None:
    with pytest.raises(SettingError, match=r"in Inbox\(settings=\.\.\.\) is not a setting"):
        Inbox(settings={name: 2})


# N3
def test_settings_that_would_drop_the_environment_are_refused() -> None:
    with pytest.raises(SettingError, match="a dict of the settings to override"):
        Inbox(cast("Any", Settings(max_attempts=3)))


# N3
def test_an_inbox_reads_its_settings_at_the_start_and_not_when_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACKBOX_PORT", "not a port")
    inbox = Inbox(settings={"max_attempts": 3})
    monkeypatch.setenv("ACKBOX_PORT", "81")
    monkeypatch.setenv("MAX_BODY_BYTES", "2KiB")
    settings = inbox.resolve().settings
    assert (settings.port, settings.max_attempts, settings.max_body_bytes) == (81, 3, 2048)
    assert inbox.resolve(embedded=True).settings.max_body_bytes == 1 << 20


# N3
@pytest.mark.parametrize(
    ("environ", "origin"),
    [
        ({}, "default"),
        ({"DB_PATH": "a.db"}, "DB_PATH"),
        ({"ACKBOX_DB_PATH": "a.db", "DB_PATH": "b.db"}, "ACKBOX_DB_PATH"),
        ({"DATABASE_URL": POSTGRES, "DB_PATH": "a.db"}, "DATABASE_URL"),
        ({"DATABASE_URL": POSTGRES, "ACKBOX_DB_PATH": "a.db"}, "ACKBOX_DB_PATH"),
        ({"DATABASE_URL": "mysql://host/theirs", "ACKBOX_DB_PATH": "a.db"}, "ACKBOX_DB_PATH"),
        ({"ACKBOX_DATABASE_URL": POSTGRES, "ACKBOX_DB_PATH": "a.db"}, "ACKBOX_DATABASE_URL"),
        ({"ACKBOX_DATABASE_URL": POSTGRES, "DB_PATH": "a.db"}, "ACKBOX_DATABASE_URL"),
        ({"ACKBOX_DATABASE_URL": POSTGRES}, "ACKBOX_DATABASE_URL"),
        ({"ACKBOX_CONFIG": "ours.toml"}, "db_path in ours.toml"),
    ],
)
def test_what_chose_the_ledger_is_known(
    tmp_path: Path, environ: dict[str, str], origin: str
) -> None:
    (tmp_path / "ours.toml").write_text('db_path = "c.db"\n')
    assert found(tmp_path, environ).ledger_origin == origin


# N3
def test_code_that_chose_the_ledger_is_named(tmp_path: Path) -> None:
    overrides = read_overrides({"db_path": "a.db", "database_url": None}, "Inbox(settings=...)")
    resolved = found(tmp_path, {"DATABASE_URL": POSTGRES, "DB_PATH": "b.db"}, overrides)
    assert resolved.settings.database_url is None
    assert resolved.ledger_origin == "db_path in Inbox(settings=...)"


# N3
@pytest.mark.parametrize(
    ("environ", "name"),
    [
        ({"DB_PATH": "a.db", "ACKBOX_API_TOKEN": "x" * 16}, "DB_PATH"),
        ({"DATABASE_URL": POSTGRES, "ACKBOX_PORT": "81"}, "DATABASE_URL"),
        ({"DATABASE_URL": POSTGRES, "ACKBOX_DB_PATH": "a.db"}, None),
        ({"DB_PATH": "a.db"}, None),
        ({"ACKBOX_DB_PATH": "a.db", "DB_PATH": "b.db"}, None),
        ({"ACKBOX_DATABASE_URL": POSTGRES, "DB_PATH": "b.db"}, None),
        ({"ACKBOX_PORT": "81", "PORT": "80"}, None),
    ],
)
def test_an_unprefixed_name_that_chooses_the_ledger_beside_prefixed_ones_is_warned_of(
    tmp_path: Path, environ: dict[str, str], name: str | None
) -> None:
    lines = found(tmp_path, environ).warn_of_unprefixed_ledger()
    assert [line.partition(" ")[0] for line in lines] == ([] if name is None else [name])
    assert all(f"set ACKBOX_{name}, or unset {name}." in line for line in lines)


# N3
@pytest.mark.parametrize(
    ("environ", "names"),
    [
        ({"ACKBOX_DB_PATH": "a.db", "DB_PATH": "b.db"}, ["DB_PATH"]),
        ({"ACKBOX_DB_PATH": "a.db", "DB_PATH": "a.db"}, []),
        ({"ACKBOX_DB_PATH": "a.db", "DATABASE_URL": POSTGRES}, []),
        (
            {"ACKBOX_PORT": "81", "PORT": "80", "ACKBOX_HOST": "::1", "HOST": "::2"},
            ["HOST", "PORT"],
        ),
        ({"ACKBOX_PORT": "tcp://10.0.0.1:8000", "PORT": "80"}, []),
    ],
)
def test_two_names_of_a_setting_with_different_values_are_warned_of(
    tmp_path: Path, environ: dict[str, str], names: list[str]
) -> None:
    lines = found(tmp_path, environ).warn_of_ignored_variables()
    assert lines == [
        f"ACKBOX_{name} and {name} have different values, and ACKBOX_{name} is used: change "
        f"ACKBOX_{name} if you mean the value of {name}, or unset {name}."
        for name in names
    ]


# N3
def test_the_warning_of_two_values_shows_no_secret(tmp_path: Path) -> None:
    (line,) = found(
        tmp_path, {"ACKBOX_API_TOKEN": "a" * 16, "API_TOKEN": "b" * 16}
    ).warn_of_ignored_variables()
    assert "aaa" not in line
    assert "bbb" not in line


# N3
def test_a_variable_that_was_not_read_is_not_warned_of(tmp_path: Path) -> None:
    environ = {"ACKBOX_DB_PATH": "a.db", "DB_PATH": "b.db"}
    overrides = read_overrides({"db_path": "c.db"}, "Inbox(settings=...)")
    assert found(tmp_path, environ, overrides).warn_of_ignored_variables() == []
    assert found(tmp_path, environ, embedded=True).warn_of_ignored_variables() == []


# N3: in the image, no other application owns the variables that the image sets.
def test_a_default_of_the_image_is_not_warned_of(tmp_path: Path) -> None:
    image = {
        "DB_PATH": "/data/events.db",
        "PORT": "8000",
        "ACKBOX_IMAGE_DEFAULTS": "DB_PATH=/data/events.db,PORT=8000",
    }
    assert found(tmp_path, image).ledger_origin == "DB_PATH"
    assert found(tmp_path, {**image, "ACKBOX_PORT": "81"}).warn_of_variables() == []
    assert found(tmp_path, {**image, "ACKBOX_DB_PATH": "a.db"}).warn_of_variables() == []


# N3
def test_a_variable_of_the_image_that_was_changed_is_warned_of(tmp_path: Path) -> None:
    image = {"DB_PATH": "b.db", "ACKBOX_IMAGE_DEFAULTS": "DB_PATH=/data/events.db,PORT=8000"}
    assert found(tmp_path, image).warn_of_variables() == []
    (line,) = found(tmp_path, {**image, "ACKBOX_PORT": "81"}).warn_of_variables()
    assert line.startswith("DB_PATH chooses the ledger")
    (line,) = found(tmp_path, {**image, "ACKBOX_DB_PATH": "a.db"}).warn_of_variables()
    assert line.startswith("ACKBOX_DB_PATH and DB_PATH have different values")


# N3
def test_where_a_prefixed_setting_came_from_is_shown_with_its_variable(tmp_path: Path) -> None:
    rows = config.explain({"ACKBOX_PORT": "81", "HOST": "::1"}, directory=tmp_path)
    shown = {row.name: (row.value, row.origin) for row in rows}
    assert shown["PORT"] == ("81", "environment (ACKBOX_PORT)")
    assert shown["HOST"] == ("::1", "environment")
