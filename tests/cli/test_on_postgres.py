"""Commands on a PostgreSQL ledger, where they differ from a SQLite ledger or might differ."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ackbox.model import QuarantineBudget
from ackbox.stores.migrations import Migration
from ackbox.stores.postgres.admin import migrator
from support.databases.postgres import Install, PostgresServer, find_installs
from support.databases.postgres_cli import PostgresLedger
from support.http.deliveries import KEYS, TABLES, signed_by_github
from support.ledgers.events import envelope, envelopes, record_in
from support.ledgers.refused import inbound, refused
from support.ledgers.seeding import States, seed
from support.servers.cli import Cli, environment
from support.servers.server import running

PASSWORD = "hunter2-hunter2-hunter2"
AWAY = f"postgresql://user:{PASSWORD}@127.0.0.1:1/events"
EXTRA = Migration(99, "extra", "CREATE TABLE extra (id integer PRIMARY KEY)")
READING = ["events list", "events show k", "events explain k", "events export", "migrate --check"]
WRITING = ["events replay k", "events replay --status failed --yes", "migrate"]


@pytest.fixture
def ledger(postgres_of: Callable[[Install], PostgresServer]) -> Iterator[PostgresLedger]:
    made = PostgresLedger(postgres_of(find_installs()[-1]))
    yield made
    made.server.recycle_database(made.url)


@pytest.fixture
def states(ledger: PostgresLedger) -> States:
    states = States()
    ledger.fill(states.seed)
    return states


# P11
def test_migrate_makes_the_ledger_once(cli: Cli, ledger: PostgresLedger) -> None:
    name = ledger.url
    assert "lacks 0001 ledger" in cli("migrate", "--check", DATABASE_URL=ledger.url).line
    assert cli("migrate", DATABASE_URL=ledger.url).out.startswith("applied 0001 ledger\n")
    assert cli("migrate", DATABASE_URL=ledger.url).out == f"{name} is up to date\n"
    assert cli("migrate", "--check", DATABASE_URL=ledger.url).out == f"{name} is up to date\n"


# P11
def test_migrate_needs_no_stopped_server(
    cli: Cli, ledger: PostgresLedger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = migrator.all_migrations()
    with running(tmp_path / "server", {"DATABASE_URL": ledger.url}) as server:
        monkeypatch.setattr(migrator, "all_migrations", lambda: [*known, EXTRA])
        line = cli("migrate", "--check", DATABASE_URL=ledger.url).line
        assert "Run `ackbox migrate`" in line
        assert "Stop" not in line
        assert cli("migrate", DATABASE_URL=ledger.url).out == "applied 0099 extra\n"
        assert server.is_ready()


# P11
def test_the_printed_sql_makes_the_same_ledger_as_migrate(
    cli: Cli, ledger: PostgresLedger, tmp_path: Path
) -> None:
    printed = cli("migrate", "--sql", DATABASE_URL=AWAY)
    assert printed.code == 0
    ledger.execute(printed.out)
    assert cli("migrate", "--check", DATABASE_URL=ledger.url).code == 0


# F38
@pytest.mark.timeout(20)
def test_where_writes_are_not_taken_a_command_reads_and_does_not_wait_to_write(
    cli: Cli, ledger: PostgresLedger, states: States
) -> None:
    ledger.execute(f"ALTER DATABASE {ledger.database} SET default_transaction_read_only = on")
    assert cli("events", "list", DATABASE_URL=ledger.url).code == 0
    done = cli("events", "replay", states.failed.id, DATABASE_URL=ledger.url)
    assert "takes no writes" in done.line


# F51
def test_the_name_of_a_ledger_has_no_password(cli: Cli, ledger: PostgresLedger) -> None:
    url = ledger.url.replace("postgres@", f"postgres:{PASSWORD}@") + "?application_name=me"
    done = cli("migrate", DATABASE_URL=url)
    assert done.code == 0
    again = cli("migrate", DATABASE_URL=url)
    assert PASSWORD not in again.out
    assert "is up to date" in again.out


def test_the_name_of_a_ledger_has_its_schema(cli: Cli, ledger: PostgresLedger) -> None:
    given = {"DATABASE_URL": ledger.url, "DATABASE_SCHEMA": "orders"}
    cli("migrate", **given)
    assert f"{ledger.url} (schema orders) is up to date" in cli("migrate", **given).out


# F51
@pytest.mark.parametrize("command", [*READING, *WRITING])
def test_an_unreachable_database_is_one_line(cli: Cli, command: str) -> None:
    line = cli(*command.split(), DATABASE_URL=AWAY).line
    assert "cannot be reached" in line
    assert PASSWORD not in line


def test_several_hosts_are_one_ledger(cli: Cli, ledger: PostgresLedger) -> None:
    url = ledger.url.replace("@", "@127.0.0.1:1,")
    assert cli("migrate", DATABASE_URL=url).code == 0


@pytest.mark.parametrize("command", ["events list", "events export", "events replay k"])
def test_reading_an_empty_database_creates_no_ledger(
    cli: Cli, ledger: PostgresLedger, command: str
) -> None:
    assert "`ackbox migrate`" in cli(*command.split(), DATABASE_URL=ledger.url).line
    assert ledger.execute("SELECT to_regclass('events')") == ""


# W12
def test_a_backup_is_refused_in_one_line_that_names_pg_dump(
    cli: Cli, ledger: PostgresLedger, tmp_path: Path
) -> None:
    assert "pg_dump" in cli("backup", "copy.db", DATABASE_URL=ledger.url).line
    assert not list(tmp_path.iterdir())


# L11
def test_events_are_listed_by_filter_and_page(
    cli: Cli, ledger: PostgresLedger, states: States
) -> None:
    listed = json.loads(cli("events", "list", "--json", DATABASE_URL=ledger.url).out)
    assert [row["id"] for row in listed["items"]] == [event.id for event in reversed(states.all)]
    failed = cli("events", "list", "--status", "failed", DATABASE_URL=ledger.url)
    assert states.failed.id in failed.out
    page = json.loads(cli("events", "list", "--json", "--limit", "3", DATABASE_URL=ledger.url).out)
    cursor = str(page["next"])
    rest = cli("events", "list", "--json", "--cursor", cursor, DATABASE_URL=ledger.url)
    assert len(json.loads(rest.out)["items"]) == len(states.all) - 3
    of_source = cli(
        *("events", "list", "--json", "--source", "shop", "--order", "source"),
        DATABASE_URL=ledger.url,
    )
    assert [row["id"] for row in json.loads(of_source.out)["items"]] == [states.completed.id]


# L11
@pytest.mark.parametrize("by", ["id", "key", "beginning"])
def test_an_event_is_shown_by_id_key_or_beginning(
    cli: Cli, ledger: PostgresLedger, states: States, by: str
) -> None:
    # Ids of the same millisecond begin with the same characters.
    id_or_key = {"id": states.failed.id, "key": "failed", "beginning": states.failed.id[:-1]}[by]
    done = cli("events", "show", id_or_key, "--json", DATABASE_URL=ledger.url)
    assert json.loads(done.out)["id"] == states.failed.id


# L11
@pytest.mark.parametrize(
    ("id_or_key", "expected"),
    [
        ("pending", "due; a free worker of any running instance claims it next"),
        ("retrying", "waits for a retry"),
        ("parked", "parked: no handler matches this type"),
        ("running", "a-worker"),
        ("failed", "a dead letter"),
        ("behind", "behind another event of its lane"),
    ],
)
def test_the_state_of_an_event_is_explained(
    cli: Cli, ledger: PostgresLedger, states: States, id_or_key: str, expected: str
) -> None:
    assert expected in cli("events", "explain", id_or_key, DATABASE_URL=ledger.url).out


# L11, F31
@pytest.mark.parametrize("served", [False, True])
def test_events_are_replayed_whether_or_not_a_server_runs(
    cli: Cli, ledger: PostgresLedger, states: States, tmp_path: Path, served: bool
) -> None:
    def replay() -> None:
        done = cli("events", "replay", "failed", "retrying", "parked", DATABASE_URL=ledger.url)
        assert done.code == 0, done
        assert "refused" in cli("events", "replay", "running", DATABASE_URL=ledger.url).out
        replayed = cli(
            "events", "replay", "--status", "completed", "--yes", DATABASE_URL=ledger.url
        )
        assert replayed.out.splitlines()[-1] == "1 of 1 events replayed"

    if served:
        with running(tmp_path / "server", {"DATABASE_URL": ledger.url}):
            replay()
    else:
        replay()
    statuses = ledger.execute("SELECT status, count(*) FROM events GROUP BY 1 ORDER BY 1")
    assert statuses == "pending|7\nprocessing|1"
    actors = ledger.execute("SELECT DISTINCT split_part(actor, ' ', 1) FROM audit")
    assert actors == "cli"


# L11
def test_every_event_is_exported_with_its_exact_payload(cli: Cli, ledger: PostgresLedger) -> None:
    sent = [*envelopes(700), envelope("text", b'{"a": 1.00}')]

    async def fill(store: Any) -> None:
        await record_in(store, sent)

    ledger.fill(fill)
    done = cli("events", "export", DATABASE_URL=ledger.url)
    lines = [json.loads(line) for line in done.out.splitlines()]
    assert {line["id"] for line in lines} == {event.id for event in sent}
    (text,) = [line for line in lines if line["idempotency_key"] == "text"]
    assert text["payload"] == '{"a": 1.00}'


def test_an_event_is_sent_to_the_server_of_the_settings(
    cli: Cli, ledger: PostgresLedger, tmp_path: Path
) -> None:
    with running(tmp_path / "server", {"DATABASE_URL": ledger.url}) as server:
        settings = {"DATABASE_URL": ledger.url, "PORT": str(server.port)}
        printed = [cli("send", "order.paid", "--key", "k", **settings).out for _ in range(2)]
        assert [line.split()[0] for line in printed] == ["new", "duplicate"]
    assert ledger.execute("SELECT event_type, ingest_count FROM events") == "order.paid|2"


def test_without_its_driver_a_command_says_how_to_install_it(tmp_path: Path) -> None:
    script = "import sys; sys.modules['asyncpg'] = None; from ackbox.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, "events", "list"],
        cwd=tmp_path,
        env=environment({"DATABASE_URL": AWAY}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "pip install 'ackbox[postgres]'" in done.stderr


# W16, F51
def test_the_address_is_shown_without_its_password(cli: Cli) -> None:
    done = cli("config", DATABASE_URL=AWAY, NOTIFY="off", DATABASE_POOLING="transaction")
    words = [line.split() for line in done.out.splitlines()]
    assert ["DATABASE_URL", "postgresql://user:***@127.0.0.1:1/events", "environment"] in words
    assert ["NOTIFY", "off", "environment"] in words


# N20
def test_doctor_reports_what_waits_as_it_does_on_sqlite(
    cli: Cli, ledger: PostgresLedger, states: States, tmp_path: Path
) -> None:
    path = seed(tmp_path / "there" / "events.db", states.seed)
    about = ("parked", "dead letters")
    here, there = (
        [row for row in json.loads(done.out)["findings"] if row["about"] in about]
        for done in (
            cli("doctor", "--json", DB_PATH=str(path)),
            cli("doctor", "--json", DATABASE_URL=ledger.url),
        )
    )
    assert here == there
    assert [row["verdict"] for row in here] == ["warn", "warn"]


# N19
def test_stats_counts_by_status(cli: Cli, ledger: PostgresLedger, states: States) -> None:
    printed = json.loads(cli("stats", "--json", DATABASE_URL=ledger.url).out)
    counts = {"pending": 5, "processing": 1, "completed": 1, "failed": 1}
    assert printed["events"] == counts
    assert printed["oldest_pending_seconds"] < 3600


@pytest.mark.parametrize("command", [["migrate"], ["promote", "ackbox.db"]])
def test_the_schema_of_the_users_tables_is_refused_before_any_change(
    cli: Cli, ledger: PostgresLedger, command: list[str]
) -> None:
    cli("migrate")  # the file that promote reads
    refused = cli(*command, DATABASE_URL=ledger.url, DATABASE_SCHEMA="public")
    assert "Name another ACKBOX_DATABASE_SCHEMA" in refused.line
    assert ledger.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == "0"


def test_quarantined_requests_are_released_beside_servers(cli: Cli, ledger: PostgresLedger) -> None:
    sent = signed_by_github(b"{}", "delivery-1").items()
    headers = tuple((name.lower(), value) for name, value in sent)
    request = replace(refused(), request=inbound(headers=headers))
    ledger.fill(lambda store: store.quarantine.keep([request], QuarantineBudget(9999, 9999)))
    (cli.folder / "ackbox.toml").write_text(TABLES)
    where = {"DATABASE_URL": ledger.url, **KEYS}
    assert "bad_signature" in cli("quarantine", "list", **where).out
    done = cli("quarantine", "release", "--all", **where)
    assert done.out.startswith("1 requests: 1 released"), done
    assert "delivery-1" in cli("events", "list", "--source", "github", **where).out
    assert "no requests" in cli("quarantine", "list", **where).err
    assert "GITHUB_KEY" in cli("quarantine", "release", "--all", DATABASE_URL=ledger.url).line
