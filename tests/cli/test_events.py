"""`ackbox events list` and `ackbox events show`."""

import json
import os
import pty
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest

from ackbox.cli.moments import parse_moment, show_age
from ackbox.model import OutcomeName
from ackbox.stores import paging
from support.ledgers.events import NOON, envelope, envelopes
from support.ledgers.seeding import States, seed
from support.servers.cli import COMMAND, Cli, Done, Ledger, environment, run
from support.servers.server import running

TEN = [
    envelope(
        f"key-{n}",
        source="shop" if n % 2 else "webhooks",
        event_type=f"type.{n % 3}",
        at=NOON + timedelta(hours=n),
    )
    for n in range(10)
]


def keys(done: Done) -> list[str]:
    """Return the keys of a list in JSON."""
    return [item["idempotency_key"] for item in json.loads(done.out)["items"]]


def change(path: Path, sql: str, *values: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(sql, values)
    connection.close()


def run_on_a_terminal(*arguments: str, folder: Path) -> str:
    """Return the output on a terminal of 80 columns."""
    person, terminal = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environment({"COLUMNS": "80", "TERM": "xterm"}),
        stdin=subprocess.DEVNULL,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    seen = b""
    while chunk := _read(person):
        seen += chunk
    os.close(person)
    assert process.wait(20) == 0, seen
    return seen.decode()


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except OSError:  # Linux raises it when the last process on the terminal has ended
        return b""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], range(9, -1, -1)),
        (["--order", "oldest"], range(10)),
        (["--limit", "3"], [9, 8, 7]),
        (["--source", "shop"], [9, 7, 5, 3, 1]),
        (["--type", "type.1", "--order", "oldest"], [1, 4, 7]),
        (["--since", "2026-01-31T20:00"], [9, 8]),
        (["--until", "2026-01-31T14:00:00+01:00"], [0]),
        (["--since", "2026-01-31 13:00", "--until", "2026-01-31T15:00Z"], [2, 1]),
        (["--status", "completed"], []),
    ],
)
def test_filters_and_order(
    cli: Cli, ledger: Ledger, options: list[str], expected: list[int]
) -> None:
    ledger(TEN)
    assert keys(cli("events", "list", "--json", *options)) == [f"key-{n}" for n in expected]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("pending", {"key-0", "key-4"}),
        ("processing", {"key-1"}),
        ("completed", {"key-2"}),
        ("failed", {"key-3"}),
        ("received", {"key-0", "key-4"}),
        ("error", {"key-4"}),
        ("processed", {"key-2"}),
        ("dead_letter", {"key-3"}),
    ],
)
def test_a_status_has_its_name_and_its_name_in_messaging(
    cli: Cli, ledger: Ledger, status: str, expected: set[str]
) -> None:
    path = ledger(TEN[:5])
    states = [("processing", "1"), ("completed", "2"), ("failed", "3"), ("pending", "4")]
    for state, n in states:
        sql = "UPDATE events SET status = ?, attempts = 1 WHERE idempotency_key = ?"
        change(path, sql, state, f"key-{n}")
    assert set(keys(cli("events", "list", "--json", "--status", status))) == expected


def test_cursors_lead_through_all_events_once(cli: Cli, ledger: Ledger) -> None:
    ledger(TEN)
    seen: list[str] = []
    options: list[str] = []
    while True:
        done = cli("events", "list", "--json", "--limit", "3", *options)
        seen += keys(done)
        if (following := json.loads(done.out)["next"]) is None:
            break
        options = ["--cursor", str(following)]
    assert seen == [f"key-{n}" for n in range(9, -1, -1)]


def test_the_list_says_when_there_is_more_and_only_then(cli: Cli, ledger: Ledger) -> None:
    ledger(TEN)
    assert cli("events", "list", "--limit", "9").err == "there are more events: --cursor 2\n"
    assert cli("events", "list", "--limit", "10").err == ""


# L13
def test_a_rare_type_is_found_behind_many_short_pages(cli: Cli, ledger: Ledger) -> None:
    ledger([envelope("rare", event_type="rare"), *envelopes(2 * paging.WINDOW)])
    assert keys(cli("events", "list", "--json", "--type", "rare")) == ["rare"]


def test_more_events_than_one_read_gives_are_listed(cli: Cli, ledger: Ledger) -> None:
    ledger(envelopes(1200))
    assert len(keys(cli("events", "list", "--json", "--limit", "1100"))) == 1100


def test_people_get_a_table_and_programs_whole_lines(cli: Cli, ledger: Ledger) -> None:
    ledger([envelope("k" * 200, event_type="order.paid")])
    head, row = cli("events", "list").out.splitlines()
    assert head.split() == ["id", "type", "source", "status", "attempts", "age", "key"]
    assert row.split()[1:5] == ["order.paid", "webhooks", "pending", "0"]
    assert row.split()[6] == "k" * 200


def test_a_terminal_gets_ids_that_show_takes(tmp_path: Path, ledger: Ledger, cli: Cli) -> None:
    ledger([envelope("k" * 200, event_type="[b]x[/b]")])
    seen = run_on_a_terminal("events", "list", folder=tmp_path).splitlines()[1]
    assert len(seen.rstrip()) <= 80
    assert "pending" in seen
    assert "[b]x[/b]" in seen
    assert "k" * 200 in cli("events", "show", seen.split()[0]).out


# F49
def test_text_from_senders_controls_neither_terminal_nor_rich(cli: Cli, ledger: Ledger) -> None:
    path = ledger([envelope("[link=x]k\u202e", event_type="[red]t[/red] :bomb:")])
    change(path, "UPDATE events SET last_error = ?", "\x1b[2J\x9b31m\nline two[/]")
    for arguments in (["list"], ["show", "[link=x]k\u202e"]):
        out = cli("events", *arguments).out
        assert "[red]t[/red] :bomb:" in out
        assert r"[link=x]k\u202e" in out
        assert all(line.isprintable() for line in out.splitlines())
    shown = cli("events", "show", "[link=x]k\u202e").out
    assert r"\x1b[2J\x9b31m\nline two[/]" in shown


# F49
def test_json_is_ascii_whatever_senders_wrote(cli: Cli, ledger: Ledger) -> None:
    path = ledger([envelope("é")])
    change(path, "UPDATE events SET last_error = ?", "\x9b31m")
    for arguments in (["list", "--json"], ["show", "é", "--json"]):
        assert cli("events", *arguments).out.isascii()


def test_no_match_is_a_message_and_no_error(cli: Cli, ledger: Ledger) -> None:
    ledger([])
    done = cli("events", "list")
    assert (done.code, done.out, done.err) == (0, "", "no events\n")


@pytest.mark.parametrize(
    "options",
    [
        ["--status", "done"],
        ["--since", "yesterday"],
        ["--since", "9999999999d"],
        ["--until", "0001-01-01T00:00+10:00"],
        ["--limit", "0"],
        ["--order", "random"],
        ["--cursor", "x"],
    ],
)
def test_a_bad_option_is_a_usage_error(cli: Cli, ledger: Ledger, options: list[str]) -> None:
    ledger([])
    done = cli("events", "list", *options)
    assert (done.code, done.out) == (2, "")
    assert options[0] in done.err


def test_times_are_read_as_people_write_them() -> None:
    assert parse_moment("1d2h", NOON) == NOON - timedelta(hours=26)
    assert parse_moment("0", NOON) == NOON
    assert parse_moment("2026-01-31", NOON) == datetime(2026, 1, 31, tzinfo=UTC)
    assert parse_moment("2026-01-31T12:00:00+02:00", NOON) == NOON - timedelta(hours=2)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-5, "0s"), (0, "0s"), (59.9, "59s"), (60, "1m"), (7199, "1h"), (86_400 * 9, "9d")],
)
def test_an_age_has_one_unit(seconds: float, shown: str) -> None:
    assert show_age(timedelta(seconds=seconds)) == shown


def test_show_finds_by_id_by_key_and_by_the_beginning_of_an_id(cli: Cli, ledger: Ledger) -> None:
    ledger(TEN)
    event = TEN[1]
    for arguments in (
        [event.id],
        [event.id.upper()],
        [event.id.replace("-", "")],
        [event.id[:18]],
        ["key-1", "--source", "shop"],
    ):
        done = cli("events", "show", *arguments, "--json")
        assert json.loads(done.out)["id"] == event.id, arguments


def test_show_prints_the_events_made_from_a_delivery(cli: Cli, ledger: Ledger) -> None:
    whole = envelope("delivery", outcome=OutcomeName.SPLIT)
    items = [envelope(f"item-{n:02}", parent_id=whole.id) for n in range(21)]
    ledger([whole, *items])
    done = cli("events", "show", "delivery")
    made = done.out.partition("events made from it:\n")[2].splitlines()[1:]
    assert [line.split()[-1] for line in made] == [f"item-{n:02}" for n in range(20)]
    assert f"ackbox events list --parent {whole.id} --order oldest" in done.err
    shown = json.loads(cli("events", "show", "delivery", "--json").out)["items"]["items"]
    assert [item["id"] for item in shown] == [item.id for item in items[:20]]
    listed = cli("events", "list", "--parent", whole.id, "--order", "oldest", "--json")
    assert len(json.loads(listed.out)["items"]) == 21
    assert "whole id" in cli("events", "list", "--parent", whole.id[:13]).err
    assert "its items are events of their own" in cli("events", "explain", "delivery").out


def test_show_prints_every_field(cli: Cli, ledger: Ledger) -> None:
    ledger([envelope("k", lane="lane-1", source_sequence=7)])
    fields = json.loads(cli("events", "show", "k", "--json").out)
    assert fields.pop("errors") == []
    assert fields.pop("items") == {"items": [], "next": None}
    shown = dict(line.split(maxsplit=1) for line in cli("events", "show", "k").out.splitlines()[1:])
    assert {name: value.strip() for name, value in shown.items()} == {
        name: "-" if value is None else str(value) for name, value in fields.items()
    }
    assert (fields["lane"], fields["source_sequence"]) == ("lane-1", 7)
    assert fields["created_at"] == "2026-01-31T12:00:00.000000Z"


def test_a_beginning_that_several_ids_share_names_them(cli: Cli, ledger: Ledger) -> None:
    pair = [envelope("a"), envelope("b")]
    ledger(pair)
    line = cli("events", "show", pair[0].id[:13]).line
    assert all(each.id in line for each in pair)


@pytest.mark.parametrize("id_or_key", ["nothing", "01890000-0000-7000-8000-000000000000", "key-1"])
def test_an_event_that_is_not_there_is_one_line(cli: Cli, ledger: Ledger, id_or_key: str) -> None:
    ledger(TEN)  # key-1 is in another source
    assert f"No event has the id {id_or_key}" in cli("events", "show", id_or_key).line


@pytest.mark.parametrize("payload", [b"\x00\x1b[2J\xff\xfe\r\n", b"", b'{"a": 1}'])
def test_payload_prints_the_exact_bytes_and_nothing_else(
    tmp_path: Path, ledger: Ledger, payload: bytes
) -> None:
    ledger([envelope("k", payload)])
    done = subprocess.run(
        [*COMMAND, "events", "show", "k", "--payload"],
        cwd=tmp_path,
        env=environment({}),
        capture_output=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == (payload, b"")


# F49
def test_a_payload_cannot_control_the_terminal(tmp_path: Path, ledger: Ledger) -> None:
    ledger([envelope("k", '{"a":\n\t"\x1b[2J\x9b é"}'.encode() + b"\xff")])
    seen = run_on_a_terminal("events", "show", "k", "--payload", folder=tmp_path)
    assert seen == '{"a":\r\n\t"\\x1b[2J\\x9b é"}\\xff\r\n'


def test_payload_and_json_exclude_each_other(cli: Cli) -> None:
    assert cli("events", "show", "k", "--payload", "--json").code == 2


# L13
def test_events_are_seen_while_the_server_runs_and_after_its_death(
    tmp_path: Path, cli: Cli
) -> None:
    with running(tmp_path / "server") as server:
        db = str(server.ledger)
        server.post({"idempotency_key": "one", "payload": 1})
        assert keys(cli("events", "list", "--json", DB_PATH=db)) == ["one"]
        server.post({"idempotency_key": "two", "payload": 2})
        server.kill()
        assert keys(cli("events", "list", "--json", DB_PATH=db)) == ["two", "one"]
        assert server.restart().post({"idempotency_key": "one", "payload": 1}).status == 200


def test_a_link_to_the_ledger_shows_what_the_log_holds(tmp_path: Path, cli: Cli) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "server" / "events.db")
    with running(tmp_path / "server") as server:
        server.post({"idempotency_key": "one", "payload": 1})
        assert keys(cli("events", "list", "--json", DB_PATH="link.db")) == ["one"]


@pytest.mark.parametrize("command", [["events", "list"], ["events", "show", "k"], ["backup", "c"]])
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "There is no ledger at"),
        (b"", "is empty"),
        (b"text", "is not a SQLite database"),
        ("CREATE TABLE t (a)", "not a ledger of ackbox"),
    ],
)
def test_what_is_no_ledger_is_one_line(
    cli: Cli, tmp_path: Path, content: bytes | str | None, reason: str, command: list[str]
) -> None:
    path = tmp_path / "ackbox.db"
    if isinstance(content, str):
        change(path, content)
    elif content is not None:
        path.write_bytes(content)
    assert reason in cli(*command).line
    assert path.exists() == (content is not None)


def test_a_ledger_that_cannot_be_read_is_one_line(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "ackbox.db").mkdir()
    assert "is a directory, not a regular file" in cli("events", "list").line


def test_a_folder_that_may_not_be_written_is_one_line(
    cli: Cli, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger([])
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root is never refused
    assert "this user may not write to the folder" in cli("events", "list").line


def test_a_ledger_of_an_older_release_names_the_way_out(cli: Cli, ledger: Ledger) -> None:
    change(ledger([]), "DELETE FROM schema_migrations")
    assert "`ackbox migrate`" in cli("events", "list").line


def test_an_argument_that_is_no_text_is_one_line(tmp_path: Path, ledger: Ledger) -> None:
    ledger([])
    done = run("events", "show", os.fsdecode(b"a\xff"), folder=tmp_path)
    assert "surrogate" in done.line


# L11, L7
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--outcome", "parked"], ["parked"]),
        (["--error", "boom", "--status", "failed"], ["failed"]),
        (["--lane", "customer-1", "--order", "oldest"], ["head", "behind"]),
        (["--order", "source", "--source", "shop"], ["completed"]),
        (["--order", "source", "--source", "webhooks", "--limit", "2"], ["pending", "retrying"]),
    ],
)
def test_an_operators_filters_and_the_order_of_a_source(
    cli: Cli, tmp_path: Path, options: list[str], expected: list[str]
) -> None:
    seed(tmp_path / "ackbox.db", States().seed)
    assert keys(cli("events", "list", "--json", *options)) == expected


# L7
def test_the_order_of_a_source_goes_on_from_its_cursor(cli: Cli, tmp_path: Path) -> None:
    seed(tmp_path / "ackbox.db", States().seed)
    order = ["events", "list", "--json", "--order", "source", "--source", "webhooks"]
    first = cli(*order, "--limit", "2")
    rest = cli(*order, "--cursor", json.loads(first.out)["next"])
    assert len(keys(first) + keys(rest)) == 7
    assert cli(*order, "--cursor", "7,8").code == 2
    assert cli("events", "list", "--order", "source").code == 2


# N19
def test_an_unknown_outcome_is_an_error_that_names_the_known_ones(cli: Cli, ledger: Ledger) -> None:
    ledger(TEN)
    done = cli("events", "list", "--outcome", "xx")
    assert done.code == 2
    assert all(outcome in done.err for outcome in OutcomeName)


# N19
def test_a_pattern_with_a_star_inside_is_an_error(cli: Cli, ledger: Ledger) -> None:
    ledger(TEN)
    assert "one `*`, at its end" in cli("events", "list", "--type", "a*b").line
    assert len(keys(cli("events", "list", "--type", "type.*", "--json"))) == 10


# N4, N19
def test_a_list_shows_outcomes_and_the_errors_of_dead_letters(cli: Cli, tmp_path: Path) -> None:
    path = seed(tmp_path / "events.db", States().seed)
    assert cli("events", "discard", "pending", DB_PATH=str(path)).code == 0
    everything = cli("events", "list", DB_PATH=str(path)).out
    for shown in ("completed (discarded)", "pending (parked)", "pending (retry)"):
        assert shown in everything
    assert "boom" not in everything
    (heading, dead) = cli(
        "events", "list", "--status", "dead_letter", DB_PATH=str(path)
    ).out.splitlines()
    assert heading.split()[-1] == "error"
    assert dead.endswith("boom: it broke")
