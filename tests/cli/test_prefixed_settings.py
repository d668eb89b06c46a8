"""N3: the prefix of settings, as the command line and a running server show it."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.servers.cli import Cli, run
from support.servers.server import running

COMMANDS = ["serve", "config", "stats", "events list", "migrate", "backup copy.db"]


def start_line(server_records: list[dict[str, Any]]) -> dict[str, Any]:
    (line,) = [record for record in server_records if record["event"] == "ready"]
    return line


# N3
@pytest.mark.parametrize("command", COMMANDS)
def test_a_misspelt_variable_stops_every_command_with_the_nearest_name(
    tmp_path: Path, command: str
) -> None:
    done = run(*command.split(), folder=tmp_path, ACKBOX_DBPATH="events.db")
    assert done.line == (
        "ACKBOX_DBPATH in the environment is not a setting: did you mean ACKBOX_DB_PATH?"
    )
    assert list(tmp_path.iterdir()) == []


# N3
def test_doctor_reports_a_misspelt_variable(cli: Cli) -> None:
    done = cli("doctor", ACKBOX_PROT="1")
    assert done.code == 1
    assert "did you mean ACKBOX_PORT?" in done.out


# N3
@pytest.mark.parametrize("command", ["config", "migrate", "migrate --check"])
def test_a_command_warns_when_an_unprefixed_name_chooses_the_ledger(cli: Cli, command: str) -> None:
    assert cli("migrate", DB_PATH="theirs.db").err == ""
    done = cli(*command.split(), DB_PATH="theirs.db", ACKBOX_PORT="81")
    assert done.code == 0
    assert done.err == (
        "ackbox: DB_PATH chooses the ledger, but another application may use a variable of that "
        "name. Since ACKBOX_PORT is set, this environment uses prefixed names: set "
        "ACKBOX_DB_PATH, or unset DB_PATH.\n"
    )
    assert cli(*command.split(), ACKBOX_DB_PATH="theirs.db", DB_PATH="theirs.db").err == ""


# N3
@pytest.mark.parametrize("command", ["config", "migrate", "migrate --check"])
def test_a_command_warns_when_two_names_of_a_setting_differ(cli: Cli, command: str) -> None:
    assert cli("migrate", ACKBOX_DB_PATH="live.db").err == ""
    done = cli(*command.split(), ACKBOX_DB_PATH="live.db", DB_PATH="copy.db")
    assert done.code == 0
    assert done.err == (
        "ackbox: ACKBOX_DB_PATH and DB_PATH have different values, and ACKBOX_DB_PATH is used: "
        "change ACKBOX_DB_PATH if you mean the value of DB_PATH, or unset DB_PATH.\n"
    )


# N3
def test_a_prefixed_path_chooses_sqlite_beside_the_database_of_another_application(
    tmp_path: Path,
) -> None:
    theirs = "postgresql://127.0.0.1:1/of_the_app"
    done = run("migrate", folder=tmp_path, ACKBOX_DB_PATH="ours.db", DATABASE_URL=theirs)
    assert (done.code, done.err) == (0, "")
    assert (tmp_path / "ours.db").exists()


# N3
def test_a_command_that_reads_twice_warns_once(cli: Cli) -> None:
    cli("migrate", DB_PATH="theirs.db")
    done = cli("events", "replay", "no-such-key", DB_PATH="theirs.db", ACKBOX_PORT="81")
    assert done.err.count("chooses the ledger") == 1


# N3
def test_help_needs_no_warning(cli: Cli) -> None:
    assert cli("stats", "--help", DB_PATH="theirs.db", ACKBOX_PORT="81").err == ""


# N3
def test_doctor_warns_of_it_as_a_finding(cli: Cli) -> None:
    done = cli("doctor", DB_PATH="theirs.db", ACKBOX_PORT="81")
    assert "warn  settings      DB_PATH chooses the ledger, but another" in done.out
    assert done.err == ""
    differing = cli("doctor", DB_PATH="theirs.db", ACKBOX_DB_PATH="ours.db")
    assert "warn  settings      ACKBOX_DB_PATH and DB_PATH have different values" in differing.out
    assert "-> change ACKBOX_DB_PATH if you mean the value of DB_PATH" in differing.out


# N3
def test_a_server_logs_its_ledger_and_the_variable_that_chose_it(tmp_path: Path) -> None:
    with running(tmp_path / "a") as server:
        line = start_line(server.records())
        assert (line["ledger"], line["ledger_origin"]) == (str(server.ledger), "DB_PATH")
    prefixed = {"ACKBOX_DB_PATH": str(tmp_path / "b" / "events.db"), "DB_PATH": "theirs.db"}
    with running(tmp_path / "b", prefixed) as server:
        line = start_line(server.records())
        assert (line["ledger"], line["ledger_origin"]) == (str(server.ledger), "ACKBOX_DB_PATH")
        assert not (tmp_path / "b" / "theirs.db").exists()
        reasons = [line["reason"] for line in server.records() if line["event"] == "caution"]
        assert [reason.partition(" is used")[0] for reason in reasons] == [
            "ACKBOX_DB_PATH and DB_PATH have different values, and ACKBOX_DB_PATH"
        ]


# N3
def test_a_server_warns_in_its_log(tmp_path: Path) -> None:
    with running(tmp_path, {"ACKBOX_LOG_FORMAT": "json"}) as server:
        reasons = [line["reason"] for line in server.records() if line["event"] == "caution"]
        assert [reason.partition(" ")[0] for reason in reasons] == ["DB_PATH"]


# N3
def test_config_names_the_prefixed_variable(cli: Cli) -> None:
    rows = json.loads(cli("config", "--json", ACKBOX_PORT="81", PORT="80").out)
    port = next(row for row in rows if row["name"] == "PORT")
    assert port == {"name": "PORT", "value": "81", "origin": "environment (ACKBOX_PORT)"}
