"""`ackbox doctor` on PostgreSQL: each problem of a server has a finding that says what to do."""

import asyncio
import inspect
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from ackbox.model import Finding, Verdict
from ackbox.stores.postgres.admin import doctor, doctor_checks
from ackbox.stores.postgres.admin.doctor_checks import Condition, LongTransaction, Vacuumed
from ackbox.stores.postgres.database import Address, Database
from ackbox.stores.postgres.read import reader
from support.databases.postgres import Install, PostgresServer, find_installs
from support.databases.postgres_cli import PostgresLedger
from support.faults.pooling_proxy import pooled
from support.ledgers.events import NOON, envelopes, record_in
from support.ledgers.postgres_backend import REBUILD_DERIVED
from support.servers.cli import Cli, Done

PASSWORD = "hunter2-hunter2-hunter2"
SOUND = Condition(
    version=180_001,
    encoding="UTF8",
    fsync="on",
    full_page_writes="on",
    synchronous_commit="on",
    synchronous_standbys="",
    autovacuum=True,
    connections_allowed=97,
    connections=5,
    replicas=0,
    standby=False,
    read_only=False,
    database="inbox",
    clock=NOON,
)


@pytest.fixture(params=find_installs(), ids=str)
def ledger(
    request: pytest.FixtureRequest, postgres_of: Callable[[Install], PostgresServer]
) -> Iterator[PostgresLedger]:
    made = PostgresLedger(postgres_of(request.param))
    yield made
    made.server.recycle_database(made.url)


def findings(done: Done) -> dict[str, dict[str, Any]]:
    order = ["ok", "warn", "fail"]
    rows = json.loads(done.out)["findings"]
    for row in rows:
        assert (row["verdict"] == "ok") == (row["remedy"] is None), row
    return {row["about"]: row for row in sorted(rows, key=lambda row: order.index(row["verdict"]))}


def examine(cli: Cli, about: str, url: str, *options: str, **settings: str) -> tuple[str, str]:
    done = cli("doctor", "--json", *options, DATABASE_URL=url, **settings)
    results = findings(done)
    assert done.code == any(row["verdict"] == "fail" for row in results.values())
    return results[about]["verdict"], f"{results[about]['detail']} {results[about]['remedy']}"


def major_of(server: PostgresServer) -> int:
    return int(server.execute("SHOW server_version_num")) // 10_000


def verdicts(results: Iterator[Finding]) -> list[Verdict]:
    return [finding.verdict for finding in results]


def test_a_sound_ledger_is_found_sound(cli: Cli, ledger: PostgresLedger) -> None:
    async def fill(store: Any) -> None:
        await record_in(store, envelopes(3))

    ledger.fill(fill)
    done = cli("doctor", "--deep", "--json", DATABASE_URL=ledger.url)
    results = findings(done)
    assert done.code == 0, done.out
    assert {row["verdict"] for row in results.values()} == {"ok"}
    assert set(results) == {
        *("python", "open files", "postgresql", "encoding", "durability", "clock", "connections"),
        *(
            "transactions",
            "notify",
            "search_path",
            "writing",
            "ledger",
            "rights",
            "vacuum",
            "queue",
            "status_counts",
        ),
        *("parked", "dead letters", "submissions"),
    }
    assert results["postgresql"]["detail"].startswith(f"PostgreSQL {major_of(ledger.server)}.")
    assert results["queue"]["detail"] == "3 pending"
    assert results["status_counts"]["detail"].startswith("3 events")


def test_doctor_makes_no_ledger(cli: Cli, ledger: PostgresLedger) -> None:
    verdict, words = examine(cli, "ledger", ledger.url, "--deep")
    assert verdict == "ok"
    assert "the first start creates it" in words
    assert ledger.execute("SELECT to_regclass('events')") == ""


def test_a_newer_schema_is_a_failure(cli: Cli, ledger: PostgresLedger) -> None:
    assert cli("migrate", DATABASE_URL=ledger.url).code == 0
    ledger.execute("INSERT INTO schema_migrations (version, name, checksum) VALUES (99, 'x', '')")
    verdict, words = examine(cli, "ledger", ledger.url)
    assert verdict == "fail"
    assert "newer ackbox" in words


# F38
def test_a_database_that_takes_no_writes_is_a_failure(cli: Cli, ledger: PostgresLedger) -> None:
    ledger.execute(f"ALTER DATABASE {ledger.database} SET default_transaction_read_only = on")
    verdict, words = examine(cli, "writing", ledger.url)
    assert verdict == "fail"
    assert "default_transaction_read_only is on" in words
    assert f"ALTER DATABASE {ledger.database} RESET default_transaction_read_only" in words


def test_a_user_who_may_only_read_is_a_failure(cli: Cli, ledger: PostgresLedger) -> None:
    assert cli("migrate", DATABASE_URL=ledger.url).code == 0
    ledger.execute(
        "CREATE ROLE onlooker LOGIN; GRANT USAGE ON SCHEMA ackbox TO onlooker; "
        "GRANT SELECT ON ALL TABLES IN SCHEMA ackbox TO onlooker"
    )
    try:
        url = ledger.url.replace("postgres@", "onlooker@")
        verdict, words = examine(cli, "rights", url, "--deep")
    finally:
        ledger.execute("DROP OWNED BY onlooker; DROP ROLE onlooker")
    assert verdict == "fail"
    assert "lacks rights on audit" in words
    assert (
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ackbox TO onlooker" in words
    )


# F37
def test_a_transaction_that_stays_open_is_named_by_its_process(
    ledger: PostgresLedger,
) -> None:
    async def find() -> list[Finding]:
        database = Database(Address(ledger.url), size=1)
        try:
            return await doctor.check_transactions(database, longer_than=timedelta(milliseconds=1))
        finally:
            await database.close()

    with ledger.open_transaction() as pid:
        (finding,) = asyncio.run(find())
    assert (finding.about, finding.verdict) == ("transactions", Verdict.WARN)
    assert f"Process {pid}" in finding.detail
    assert "idle in transaction" in finding.detail
    assert f"pg_terminate_backend({pid})" in str(finding.remedy)


# N20
def test_an_event_that_has_waited_for_hours_is_a_warning(cli: Cli, ledger: PostgresLedger) -> None:
    async def fill(store: Any) -> None:
        await record_in(store, envelopes(2))

    ledger.fill(fill)
    ledger.execute("UPDATE events SET created_at = created_at - interval '3 hours'")
    verdict, words = examine(cli, "queue", ledger.url)
    assert verdict == "warn"
    assert "2 pending, the oldest since 3 h." in words


# F37
def test_a_table_without_autovacuum_is_a_failure(cli: Cli, ledger: PostgresLedger) -> None:
    assert cli("migrate", DATABASE_URL=ledger.url).code == 0
    ledger.execute("ALTER TABLE events SET (autovacuum_enabled = false)")
    assert examine(cli, "vacuum", ledger.url)[0] == "fail"


def test_a_user_who_may_not_create_a_ledger_is_reported(cli: Cli, ledger: PostgresLedger) -> None:
    ledger.execute("CREATE ROLE guest LOGIN")
    try:
        url = ledger.url.replace("postgres@", "guest@")
        verdict, words = examine(cli, "ledger", url)
    finally:
        ledger.execute("DROP ROLE guest")
    assert verdict == "fail"
    assert "CREATE SCHEMA ackbox AUTHORIZATION guest" in words


def test_a_search_path_without_a_schema_for_users_tables_is_a_failure(
    cli: Cli, ledger: PostgresLedger
) -> None:
    ledger.execute(f"ALTER DATABASE {ledger.database} SET search_path = ackbox")
    verdict, words = examine(cli, "search_path", ledger.url)
    assert verdict == "fail"
    assert words.startswith("Your own tables have no schema: ")
    assert words.endswith(
        "Run ALTER ROLE postgres SET search_path = public, or name another schema there."
    )


def test_a_table_of_others_with_our_name_is_reported(cli: Cli, ledger: PostgresLedger) -> None:
    ledger.execute("CREATE SCHEMA ackbox; CREATE TABLE ackbox.events (a integer)")
    verdict, words = examine(cli, "ledger", ledger.url)
    assert verdict == "fail"
    assert "tables under its names: events" in words


def test_parked_events_are_a_warning(cli: Cli, ledger: PostgresLedger) -> None:
    async def fill(store: Any) -> None:
        await record_in(store, envelopes(3))

    ledger.fill(fill)
    ledger.execute("UPDATE events SET outcome = 'parked' WHERE idempotency_key <> 'key-0'")
    for statement in REBUILD_DERIVED:
        ledger.execute(statement)
    verdict, words = examine(cli, "parked", ledger.url)
    assert verdict == "warn"
    assert "2 events are parked" in words


def test_deep_counts_the_events_one_by_one(cli: Cli, ledger: PostgresLedger) -> None:
    async def fill(store: Any) -> None:
        await record_in(store, envelopes(5))

    ledger.fill(fill)
    ledger.execute("INSERT INTO status_counts VALUES ('pending', 1)")
    verdict, words = examine(cli, "status_counts", ledger.url, "--deep")
    assert verdict == "fail"
    assert "pending 6, counted 5" in words


def test_deep_compares_the_live_rows_with_the_events(cli: Cli, ledger: PostgresLedger) -> None:
    async def fill(store: Any) -> None:
        await record_in(store, envelopes(5))

    ledger.fill(fill)
    ledger.execute(
        "UPDATE live_events SET run = 7 WHERE ledger_id = (SELECT min(ledger_id) FROM live_events)"
    )
    verdict, words = examine(cli, "status_counts", ledger.url, "--deep")
    assert verdict == "fail"
    assert "live_events 5, counted 4" in words


def test_deep_reports_how_long_it_has_been_counting(ledger: PostgresLedger) -> None:
    async def fill(store: Any) -> None:
        await record_in(store, envelopes(5))

    ledger.fill(fill)
    reported: list[float] = []
    assert verdicts(doctor.examine_deep(Address(ledger.url), reported.append)) == ["ok"]
    assert reported


# F37
def test_deep_stops_before_it_holds_back_vacuum(ledger: PostgresLedger) -> None:
    async def fill(store: Any) -> None:
        await record_in(store, envelopes(1))

    ledger.fill(fill)
    ledger.execute("CREATE VIEW ackbox.slow AS SELECT events.* FROM events, pg_sleep(5)")
    ledger.execute("ALTER TABLE events RENAME TO hidden; ALTER VIEW slow RENAME TO events")
    (finding,) = doctor.examine_deep(Address(ledger.url), lambda seconds: None, seconds=0.3)
    assert finding.verdict is Verdict.WARN
    assert "stopped" in finding.detail


@pytest.mark.parametrize(
    ("settings", "why"),
    [({"DATABASE_POOLING": "transaction"}, "DATABASE_POOLING"), ({"NOTIFY": "off"}, "NOTIFY=off")],
)
def test_without_notify_instances_poll(
    cli: Cli, ledger: PostgresLedger, settings: dict[str, str], why: str
) -> None:
    verdict, words = examine(cli, "notify", ledger.url, **settings)
    assert verdict == "ok"
    assert why in words


def test_a_notify_that_is_not_received_is_a_warning(ledger: PostgresLedger) -> None:
    checking = doctor.check_notify(Address(ledger.url), notify=True, seconds=0.0)
    finding = asyncio.run(checking)
    assert (finding.about, finding.verdict) == ("notify", Verdict.WARN)
    assert "DATABASE_POOLING=transaction" in str(finding.remedy)


# F51
def test_an_unreachable_server_is_a_failure_that_shows_no_password(cli: Cli) -> None:
    url = f"postgresql://user:{PASSWORD}@127.0.0.1:1/events"
    verdict, words = examine(cli, "postgresql", url, "--deep")
    assert verdict == "fail"
    assert "cannot be reached" in words
    assert PASSWORD not in words


def test_an_address_that_is_refused_is_a_bad_setting(cli: Cli, ledger: PostgresLedger) -> None:
    url = ledger.server.url("nowhere")
    verdict, words = examine(cli, "settings", url)
    assert verdict == "fail"
    assert '"nowhere" does not exist' in words


@pytest.mark.parametrize(
    ("version", "verdict"), [(130_020, "fail"), (140_000, "ok"), (180_001, "ok"), (190_000, "warn")]
)
def test_an_unsupported_version_is_reported(version: int, verdict: str) -> None:
    assert doctor_checks.check_version(version).verdict == verdict


def test_another_encoding_is_a_failure() -> None:
    assert doctor_checks.check_encoding("LATIN1").verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("changes", "durability", "verdicts_"),
    [
        ({}, "full", ["ok"]),
        ({"fsync": "off"}, "full", ["fail"]),
        ({"full_page_writes": "off"}, "full", ["fail"]),
        ({"synchronous_commit": "off"}, "full", ["fail"]),
        ({"synchronous_commit": "local"}, "full", ["fail"]),
        ({"fsync": "off"}, "normal", ["ok"]),
        ({"replicas": 1}, "full", ["warn"]),
        ({"replicas": 1, "synchronous_standbys": "b"}, "full", ["ok"]),
    ],
)
def test_settings_that_break_full_durability_are_reported(
    changes: dict[str, Any], durability: str, verdicts_: list[str]
) -> None:
    condition = replace(SOUND, **changes)
    assert verdicts(doctor_checks.check_durability(condition, durability)) == verdicts_


def test_a_proxy_that_pools_is_found_with_the_setting_that_it_needs(
    cli: Cli, ledger: PostgresLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement that one process prepared is still there, by name, for another process."""
    with pooled(ledger.server.port, ledger.database) as proxy:
        url = f"postgresql://postgres@127.0.0.1:{proxy.port}/any"

        def examine_anew() -> tuple[str, str]:
            monkeypatch.setattr("asyncpg.connection._uid", 0)  # as in a new process
            return examine(cli, "postgresql", url, NOTIFY="off")

        *_, (verdict, words) = [examine_anew() for _ in range(4)]
    assert verdict == "fail"
    assert "A proxy before the database" in words
    assert words.endswith("Set ACKBOX_DATABASE_POOLING=transaction.")


# F38
def test_a_standby_is_distinguished_from_a_read_only_database() -> None:
    standby = doctor_checks.check_writing(replace(SOUND, standby=True, read_only=True))
    assert standby.verdict is Verdict.FAIL
    assert "standby" in standby.detail
    assert doctor_checks.check_writing(SOUND).verdict is Verdict.OK


# F25
@pytest.mark.parametrize(
    ("seconds", "verdict"), [(29, "ok"), (-29, "ok"), (31, "warn"), (-31, "warn")]
)
def test_a_clock_that_disagrees_with_the_servers_is_a_warning(seconds: int, verdict: str) -> None:
    assert doctor_checks.check_clock(NOON + timedelta(seconds=seconds), NOON).verdict == verdict


@pytest.mark.parametrize(("used", "verdict"), [(86, "ok"), (87, "warn")])
def test_too_few_connections_for_another_instance_are_a_warning(used: int, verdict: str) -> None:
    assert doctor_checks.check_connections(used, 97).verdict == verdict


def test_the_connections_of_an_instance_are_counted_right() -> None:
    """They belong to the store and the reader; one listens, and one renews leases."""
    of_store = inspect.signature(Database).parameters["size"].default
    connections = of_store + reader._CONNECTIONS + 2
    assert connections == doctor_checks._CONNECTIONS_OF_AN_INSTANCE


def test_dead_rows_that_nobody_vacuums_are_a_warning() -> None:
    assert doctor_checks.check_vacuum(True, Vacuumed(False, 2_000_000, 100)).verdict is Verdict.WARN
    assert doctor_checks.check_vacuum(True, Vacuumed(False, 900_000, 100)).verdict is Verdict.OK
    assert doctor_checks.check_vacuum(False, None).verdict is Verdict.FAIL


def test_each_open_transaction_is_a_finding() -> None:
    transactions = [
        LongTransaction(1, "active", 90.0),
        LongTransaction(2, "idle in transaction", 80.0),
    ]
    assert len(list(doctor_checks.check_transactions(transactions))) == 2


def test_a_schema_that_was_renamed_is_a_failure(cli: Cli, ledger: PostgresLedger) -> None:
    cli("migrate", DATABASE_URL=ledger.url)
    ledger.execute("ALTER SCHEMA ackbox RENAME TO second")
    done = cli("doctor", "--json", DATABASE_URL=ledger.url, DATABASE_SCHEMA="second")
    found = findings(done)["ledger"]
    assert found["verdict"] == "fail"
    assert "ALTER SCHEMA second RENAME TO ackbox" in f"{found['detail']} {found['remedy']}"
