"""`ackbox config` (W16)."""

import json
from pathlib import Path

from ackbox.config import Settings
from support.servers.cli import Cli

SECRET = "hunter2-hunter2-hunter2"


# W16
def test_every_setting_is_shown_with_where_it_came_from(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "ackbox.toml").write_text("worker_count = 3\n")
    rows = json.loads(cli("config", "--json", PORT="9000").out)
    shown = {row["name"]: (row["value"], row["origin"]) for row in rows}
    assert set(shown) == {*(name.upper() for name in Settings.model_fields), "ACKBOX_CONFIG"}
    assert shown["PORT"] == ("9000", "environment")
    assert shown["WORKER_COUNT"] == ("3", "ackbox.toml")
    assert shown["DURABILITY"] == ("full", "default")


def test_people_get_a_line_for_each_setting(cli: Cli) -> None:
    lines = cli("config", PORT="9000").out.splitlines()
    assert ["PORT", "9000", "environment"] in [line.split() for line in lines]
    assert len(lines) == len(Settings.model_fields) + 2


# F51
def test_no_secret_is_shown(cli: Cli) -> None:
    secrets = {
        "API_TOKEN": SECRET,
        "INGEST_TOKEN": SECRET,
        "DATABASE_URL": f"postgresql://user:{SECRET}@db/events",
    }
    for arguments in (["config"], ["config", "--json"]):
        done = cli(*arguments, **secrets)
        assert done.code == 0
        assert SECRET not in done.out
        assert "***" in done.out


def test_markup_and_control_characters_of_a_value_do_nothing(cli: Cli) -> None:
    done = cli("config", DB_PATH="[red]x[/red].db")
    assert "[red]x[/red].db" in done.out
