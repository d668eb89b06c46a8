"""`ackbox doctor`: each of its checks can fail, and then it says what to do."""

import json
import os
import re
import resource
import signal
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from ackbox.cli import doctor
from ackbox.config import Settings
from ackbox.model import Verdict
from ackbox.stores.sqlite.admin import doctor as checks
from ackbox.stores.sqlite.admin import doctor_checks
from ackbox.stores.sqlite.lock import find_holder
from support.faults.disk import on_a_faulty_disk
from support.http.posting import posted
from support.ledgers.events import NOON, envelope, envelopes
from support.servers.cli import Cli, Done, Ledger
from support.servers.server import Server, running

MOUNTS = (
    "/dev/sda1 / ext4 rw,relatime 0 0\n"
    "nas:/data /srv/with\\040space nfs4 rw 0 0\n"
    "tmpfs /srv/with\\040space/fast tmpfs rw 0 0\n"
    "/dev/sdb1 /srv2 xfs rw 0 0\n"
    "/dev/sdc1 /srv2 btrfs rw 0 0\n"
)


def findings(done: Done) -> dict[str, dict[str, Any]]:
    """Return the worst finding of each topic."""
    order = ["ok", "warn", "fail"]
    rows = json.loads(done.out)["findings"]
    return {row["about"]: row for row in sorted(rows, key=lambda row: order.index(row["verdict"]))}


def examine(cli: Cli, about: str, *options: str, **settings: str) -> tuple[str, str]:
    """Return the verdict and the text about a topic. A problem has a remedy, and a failure
    exits with 1."""
    done = cli("doctor", "--json", *options, **settings)
    results = findings(done)
    assert done.code == any(row["verdict"] == "fail" for row in results.values())
    assert json.loads(done.out)["ok"] == (done.code == 0)
    for row in results.values():
        assert (row["verdict"] == "ok") == (row["remedy"] is None), row
    row = results[about]
    return row["verdict"], f"{row['detail']} {row['remedy']}"


def change(path: Path, sql: str, *values: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(sql, values)
    connection.close()


def test_a_sound_ledger_is_found_sound(cli: Cli, ledger: Ledger) -> None:
    ledger(envelopes(3))
    done = cli("doctor", "--deep", "--json")
    results = findings(done)
    results.pop("filesystem")  # tests may run on a file system in memory
    assert "the oldest since" in results.pop("queue")["detail"]  # these events are months old
    assert done.code == 0
    assert {row["verdict"] for row in results.values()} == {"ok"}
    assert {
        "python",
        "sqlite",
        "folder",
        "room",
        "files",
        "clock",
        "ledger",
        "order",
        "log",
    } <= set(results)
    assert {"open files", "server", "pages", "status_counts"} <= set(results)
    assert results["status_counts"]["detail"].startswith("3 events")


def test_people_get_a_line_for_each_finding_and_its_remedy(cli: Cli, ledger: Ledger) -> None:
    ledger([]).chmod(0o644)
    lines = cli("doctor").out.splitlines()
    index = next(n for n, line in enumerate(lines) if line.startswith("warn  files"))
    assert lines[index + 1].strip().startswith("-> chmod o-rwx")
    assert any(line.startswith("ok    ledger") for line in lines)


def test_doctor_leaves_no_trace(cli: Cli, ledger: Ledger, tmp_path: Path) -> None:
    ledger(envelopes(3))
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    assert cli("doctor").code == 0
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


# W16
def test_a_bad_setting_is_a_failure_and_the_rest_is_reported(cli: Cli) -> None:
    verdict, words = examine(cli, "settings", LOG_LEVEL="LOUD")
    assert verdict == "fail"
    assert "LOG_LEVEL=LOUD" in words


def test_unwise_settings_are_warnings(cli: Cli) -> None:
    verdict, words = examine(cli, "settings", API_TOKEN="short")
    assert verdict == "warn"
    assert "API_TOKEN is short" in words


# S5
def test_a_token_that_others_can_read_is_a_failure(cli: Cli, ledger: Ledger) -> None:
    path = ledger([])
    assert examine(cli, "token")[0] == "ok"
    token = path.with_name("ackbox.db.token")
    token.write_text("a-token-of-twenty-characters\n")
    token.chmod(0o644)
    verdict, words = examine(cli, "token")
    assert verdict == "fail"
    assert "0644" in words
    assert "a-token-of" not in words
    verdict, words = examine(cli, "token", API_TOKEN="a-token-of-twenty-characters")
    assert (verdict, "a-token-of" in words) == ("ok", False)
    token.chmod(0o600)
    assert examine(cli, "token")[0] == "ok"


# S5
def test_the_advice_for_a_token_that_others_can_read_makes_it_usable(
    cli: Cli, ledger: Ledger
) -> None:
    path = ledger([])
    token = path.with_name("ackbox.db.token")
    token.write_text("a-token-of-twenty-characters\n")
    token.chmod(0o644)
    words = examine(cli, "files")[1]
    assert words.endswith(f"chmod 600 {token}")
    assert "o-rwx" not in words
    path.chmod(0o644)
    assert examine(cli, "files")[1].endswith(f"chmod o-rwx {path}; chmod 600 {token}")


# S5
def test_without_a_token_file_doctor_says_which_token_counts(
    cli: Cli, ledger: Ledger, tmp_path: Path
) -> None:
    ledger([])
    verdict, words = examine(cli, "token")
    assert verdict == "ok"
    assert "ackbox.db.token does not exist yet: the next start creates it" in words
    verdict, words = examine(cli, "token", API_TOKEN="a-token-of-twenty-characters")
    assert verdict == "ok"
    assert words.startswith("API_TOKEN is used")
    settings = {"API_TOKEN": "a-token-of-twenty-characters"}
    with running(tmp_path / "server", settings) as server:
        verdict, words = examine(cli, "token", DB_PATH=str(server.ledger))
    assert verdict == "ok"
    assert f"does not exist: perhaps process {server.pid} was started with API_TOKEN set" in words
    assert "next start" not in words


# S16
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "inbox.internal"])
def test_a_public_bind_without_an_ingest_token_is_a_warning(cli: Cli, host: str) -> None:
    verdict, words = examine(cli, "settings", HOST=host)
    assert verdict == "warn"
    assert f"HOST={host}" in words
    assert "INGEST_TOKEN" in words


def test_a_ledger_that_does_not_exist_yet_is_ok(cli: Cli, tmp_path: Path) -> None:
    verdict, words = examine(cli, "ledger")
    assert verdict == "ok"
    assert "the first start creates it" in words
    assert list(tmp_path.iterdir()) == []


def test_a_log_without_its_ledger_is_a_failure(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "ackbox.db-wal").write_bytes(b"x")
    verdict, words = examine(cli, "ledger")
    assert verdict == "fail"
    assert "side by side" in words


def test_a_missing_folder_is_a_failure(cli: Cli) -> None:
    verdict, words = examine(cli, "folder", DB_PATH="nowhere/x.db")
    assert verdict == "fail"
    assert "mkdir -p" in words


def test_a_folder_and_files_of_somebody_else_are_failures(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ledger([])
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root is never refused
    assert doctor_checks.check_folder(path.parent).verdict is Verdict.FAIL
    assert Verdict.FAIL in {finding.verdict for finding in doctor_checks.check_files(path)}


def test_files_that_everybody_may_read_are_a_warning(cli: Cli, ledger: Ledger) -> None:
    path = ledger([])
    path.chmod(0o604)
    verdict, words = examine(cli, "files")
    assert verdict == "warn"
    assert f"chmod o-rwx {path}" in words


def test_behind_a_link_the_files_beside_the_ledger_are_seen(cli: Cli, ledger: Ledger) -> None:
    path = ledger([])
    path.with_name("ackbox.db.lock").chmod(0o604)
    (path.parent / "elsewhere").mkdir()
    (path.parent / "elsewhere" / "link.db").symlink_to(path)
    assert examine(cli, "files", DB_PATH="elsewhere/link.db")[0] == "warn"


def test_files_of_different_owners_are_a_warning(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only root can change the owner of a file, so `stat` is patched to report another owner."""
    path = ledger([])
    really = Path.stat

    def stat(file: Path, *, follow_symlinks: bool = True) -> os.stat_result:
        fields = list(really(file, follow_symlinks=follow_symlinks))
        fields[4] = 1 if file == path else 2
        return os.stat_result(fields)

    monkeypatch.setattr(Path, "stat", stat)
    findings = list(doctor_checks.check_files(path))
    assert [finding.verdict for finding in findings] == ["warn"]
    assert "different users" in findings[0].detail


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"text", "is not a SQLite database"),
        ("CREATE TABLE t (a)", "not a ledger of ackbox"),
    ],
)
def test_a_file_that_is_not_a_ledger_is_a_failure(
    cli: Cli, tmp_path: Path, content: bytes | str, reason: str
) -> None:
    path = tmp_path / "ackbox.db"
    if isinstance(content, str):
        change(path, content)
    else:
        path.write_bytes(content)
    verdict, words = examine(cli, "ledger")
    assert verdict == "fail"
    assert reason in words


def test_a_pending_migration_is_a_warning_and_a_newer_schema_a_failure(
    cli: Cli, ledger: Ledger
) -> None:
    path = ledger([])
    change(path, "DELETE FROM schema_migrations")
    verdict, words = examine(cli, "ledger")
    assert verdict == "warn"
    assert "`ackbox migrate`" in words
    change(path, "INSERT INTO schema_migrations (version, name, checksum) VALUES (99, 'x', '')")
    verdict, words = examine(cli, "ledger")
    assert verdict == "fail"
    assert "newer ackbox" in words


# F16
def test_damage_is_a_failure_that_names_the_way_out(cli: Cli, ledger: Ledger) -> None:
    path = ledger(envelopes(500))
    with path.open("r+b") as file:
        file.seek(4096 * 6)
        file.write(b"\xff" * 4096 * 4)
    verdict, words = examine(cli, "ledger")
    assert verdict == "fail"
    assert "page how-to/recover" in words


# F16
def test_deep_finds_damage_that_a_quick_check_does_not(cli: Cli, ledger: Ledger) -> None:
    path = ledger(envelopes(50))
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA writable_schema = on")
    connection.execute(  # the entries of the index no longer match its definition
        "UPDATE sqlite_schema SET sql = replace(sql, '(id)', '(source)') WHERE name = 'events_id'"
    )
    connection.close()
    assert examine(cli, "ledger")[0] == "ok"
    verdict, words = examine(cli, "pages", "--deep")
    assert verdict == "fail"
    assert "page how-to/recover" in words


def test_deep_counts_the_events_one_by_one(cli: Cli, ledger: Ledger) -> None:
    change(ledger(envelopes(5)), "UPDATE status_counts SET events = 6 WHERE status = 'pending'")
    verdict, words = examine(cli, "status_counts", "--deep")
    assert verdict == "fail"
    assert "pending 6, counted 5" in words


# L13
def test_deep_stops_before_the_log_of_a_server_grows_large(ledger: Ledger) -> None:
    path = ledger(envelopes(2000))
    with closing(apsw.Connection(str(path))) as server:

        def grow(seconds: float) -> None:
            server.execute("CREATE TABLE IF NOT EXISTS mine (n); INSERT INTO mine VALUES (1)")

        (finding,) = checks.examine_deep(path, grow, log_growth=100_000, steps=100)
    assert finding.verdict is Verdict.WARN
    assert finding.remedy is not None
    assert "ackbox backup" in finding.remedy


def test_deep_reports_how_long_it_has_been_reading(ledger: Ledger) -> None:
    reported: list[float] = []
    findings = checks.examine_deep(ledger(envelopes(2000)), reported.append, steps=100)
    assert len(list(findings)) == 2
    assert reported == sorted(reported)
    assert reported


# W12
def test_doctor_names_the_backup_command_beside_the_log(cli: Cli, server: Server) -> None:
    verdict, words = examine(cli, "log", DB_PATH=str(server.ledger))
    assert verdict == "ok"
    assert "-wal" in words
    assert "`ackbox backup FILE`" in words


# C8
def test_a_ledger_restored_from_sql_text_is_a_warning(cli: Cli, ledger: Ledger) -> None:
    change(ledger([]), "PRAGMA application_id = 0")  # a dump does not contain it
    verdict, words = examine(cli, "ledger")
    assert verdict == "warn"
    assert "was restored from SQL text" in words


# F35
def test_a_large_log_is_a_warning(cli: Cli, ledger: Ledger) -> None:
    path = ledger([])
    with path.with_name("ackbox.db-wal").open("wb") as log:
        log.truncate(65 * 1024 * 1024)
    verdict, words = examine(cli, "log")
    assert verdict == "warn"
    assert "65 MiB" in words


def test_a_running_server_is_named_and_checked(cli: Cli, server: Server) -> None:
    verdict, words = examine(cli, "server", DB_PATH=str(server.ledger))
    assert verdict == "ok"
    assert f"process {server.pid}" in words
    assert f"http://127.0.0.1:{server.port}" in words


def test_a_server_that_does_not_respond_is_a_failure(tmp_path: Path) -> None:
    with running(tmp_path / "server") as server:
        server.process.send_signal(signal.SIGSTOP)
        settings = Settings(db_path=server.ledger)
        finding = doctor.check_server(settings, find_holder(server.ledger), timeout=0.3)
        server.process.send_signal(signal.SIGCONT)
    assert (finding.about, finding.verdict) == ("server", Verdict.FAIL)
    assert finding.remedy == "Read the log of the server."


# N10
def test_a_server_that_accepts_no_events_is_a_failure_that_says_why(
    cli: Cli, tmp_path: Path
) -> None:
    with on_a_faulty_disk(tmp_path) as (server, disk):
        disk.break_("full")
        assert server.post(posted()).status == 503
        verdict, words = examine(cli, "server", DB_PATH=str(server.ledger))
    assert verdict == "fail"
    # in the words of ingest, of the monitor or of the check of the disk
    assert re.search("accepts no events: .*(disk.* full|full disk)", words)


# N1, F54
@pytest.mark.parametrize("how", ["deleted", "moved", "replaced"])
def test_a_ledger_that_lost_its_name_under_its_server_is_a_failure(
    cli: Cli, tmp_path: Path, how: str
) -> None:
    with running(tmp_path / "server") as server:
        server.ledger.rename(away := tmp_path / "away.db")
        if how == "deleted":
            away.unlink()
        elif how == "replaced":
            server.ledger.write_bytes(away.read_bytes())
        results = findings(cli("doctor", "--json", DB_PATH=str(server.ledger)))
    row = results["files"]
    assert row["verdict"] == "fail"
    no_longer = f"Process {server.pid} serves a ledger that {server.ledger} no longer names"
    assert no_longer in row["detail"]
    assert "with FILE in the BACKUP_DIR of the server" in row["remedy"]
    assert "ledger" not in results  # the file that has its name now is not the ledger


def test_a_killed_server_does_not_run(cli: Cli, tmp_path: Path) -> None:
    with running(tmp_path / "server") as server:
        server.kill()
        verdict, words = examine(cli, "server", DB_PATH=str(server.ledger))
    assert (verdict, words) == ("ok", "no server runs on this ledger None")


@pytest.mark.parametrize("where", ["event", "file"])
def test_a_ledger_from_the_future_is_a_warning(cli: Cli, ledger: Ledger, where: str) -> None:
    later = datetime.now(UTC) + timedelta(seconds=90)
    path = ledger([envelope("k", at=later if where == "event" else NOON)])
    if where == "file":
        os.utime(path, (later.timestamp(), later.timestamp()))
    verdict, words = examine(cli, "order")
    assert verdict == "warn"
    assert "s ahead of this clock" in words


@pytest.mark.parametrize(("year", "verdict"), [(1970, "fail"), (2026, "ok"), (2106, "fail")])
def test_a_clock_that_cannot_be_right_is_a_failure(year: int, verdict: str) -> None:
    assert doctor_checks.check_clock(datetime(year, 1, 1, tzinfo=UTC)).verdict == verdict


@pytest.mark.parametrize(
    ("version", "verdict"),
    [
        ("3.51.2", "fail"),
        ("3.50.6", "fail"),
        ("3.52.0", "fail"),
        ("3.51.3", "ok"),
        ("3.53.0", "ok"),
    ],
)
def test_a_sqlite_that_can_corrupt_the_file_is_a_failure(version: str, verdict: str) -> None:
    assert doctor_checks.check_engine(version).verdict == verdict


@pytest.mark.parametrize(
    ("mebibytes", "verdict"), [(15, "fail"), (16, "warn"), (1023, "warn"), (1024, "ok")]
)
def test_a_full_disk_is_reported(mebibytes: int, verdict: str) -> None:
    assert doctor_checks.check_free_space(mebibytes * 1024 * 1024).verdict == verdict


@pytest.mark.parametrize(
    ("folder", "kind", "verdict"),
    [
        ("/home/x", "ext4", "ok"),
        ("/srv/with space/db", "nfs4", "warn"),
        ("/srv/with spaces", "ext4", "ok"),
        ("/srv/with space/fast", "tmpfs", "warn"),
        ("/srv2", "btrfs", "ok"),
    ],
)
def test_a_filesystem_that_is_not_a_disk_of_this_machine_is_a_warning(
    folder: str, kind: str, verdict: str
) -> None:
    assert doctor_checks.filesystem_of(Path(folder), MOUNTS) == kind
    assert doctor_checks.check_filesystem(kind).verdict == verdict


def test_without_mounts_the_filesystem_is_unknown() -> None:
    assert doctor_checks.filesystem_of(Path("/x"), "") is None
    assert doctor_checks.check_filesystem(None).verdict is Verdict.OK


def test_few_open_files_are_a_warning(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 1024))
    verdict, words = examine(cli, "open files")
    assert verdict == "warn"
    assert "1024" in words


# F49
def test_the_name_of_a_file_cannot_control_the_terminal(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "\x1b[2J"
    folder.mkdir()
    cli.folder = folder
    done = cli("doctor", DB_PATH="x.db")
    assert r"\x1b[2J" in done.out
    assert "\x1b" not in done.out
