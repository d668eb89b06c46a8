"""`ackbox events import` (L11)."""

import asyncio
import io
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from ackbox.app import choose_backend, utc_now
from ackbox.cli.events_import import Import
from ackbox.config.loader import load
from ackbox.model import Envelope, EventFilter, OutcomeName, Receipt, Submission
from ackbox.ports import Store
from ackbox.stores.sqlite.lock import LedgerLock
from support.ledgers.backends import open_sqlite
from support.ledgers.events import envelope, envelopes, record_in
from support.ledgers.promoting import opened, postgres_rows
from support.ledgers.seeding import States, seed
from support.servers.cli import Cli, Done, Ledger, environment, run
from support.servers.server import read_ledger

KEPT = (
    "source, idempotency_key, event_type, payload, payload_sha256, content_type, headers, lane, "
    "source_sequence, parent_id"
)
RICH = [
    envelope("plain", b'{"n": 1}'),
    envelope("bytes", b"\xff\x00\x1b"),
    envelope("text", "paid: 7 €\n\0".encode(), content_type="text/plain"),
    envelope("broken", b'{"n": 1'),
    envelope("full", b"[]", source="shop", lane="a", source_sequence=7, headers='{"x-shop":"a"}'),
    envelope("empty", b"", event_type="order.paid", parent_id=envelope().id),
]


@pytest.fixture(params=["sqlite", "postgres"])
def empty(request: pytest.FixtureRequest, cli: Cli, tmp_path: Path) -> dict[str, str]:
    """The settings of an empty ledger, on either database."""
    if request.param == "sqlite":
        settings = {"DB_PATH": str(tmp_path / "new.db")}
    else:
        settings = {"DATABASE_URL": request.getfixturevalue("target")}
    assert cli("migrate", **settings).code == 0
    return settings


def lines(*written: dict[str, Any] | str) -> str:
    return "".join((w if isinstance(w, str) else json.dumps(w)) + "\n" for w in written)


def line(key: str = "k", **more: Any) -> dict[str, Any]:
    return {"idempotency_key": key, "payload": "{}", **more}


def rows(settings: dict[str, str], columns: str) -> list[tuple[Any, ...]]:
    sql = f"SELECT {columns} FROM events ORDER BY ledger_id"
    if "DB_PATH" in settings:
        return read_ledger(Path(settings["DB_PATH"]), sql)
    return postgres_rows(settings["DATABASE_URL"], sql)


@pytest.fixture
def take(cli: Cli, tmp_path: Path) -> Callable[..., Done]:
    """Write these lines into a file, and import it."""

    def take(settings: dict[str, str], text: str, *options: str) -> Done:
        (tmp_path / "in.jsonl").write_text(text)
        return cli("events", "import", "in.jsonl", *options, **settings)

    return take


Take = Callable[..., Done]


def test_exported_events_are_imported_byte_for_byte(
    cli: Cli, ledger: Ledger, empty: dict[str, str], tmp_path: Path
) -> None:
    path = ledger(RICH)
    cli("events", "export", "--file", "out.jsonl")
    done = cli("events", "import", "out.jsonl", **empty)
    assert (done.code, done.out, done.err) == (0, "6 new, 0 duplicate, 0 conflict\n", "")
    assert rows(empty, KEPT) == read_ledger(path, f"SELECT {KEPT} FROM events ORDER BY ledger_id")
    assert set(rows(empty, "status, attempts, transport")) == {("pending", 0, "import")}


def test_a_delivery_stays_completed_and_its_items_follow_it(
    cli: Cli, ledger: Ledger, empty: dict[str, str]
) -> None:
    whole = envelope("delivery", outcome=OutcomeName.SPLIT)
    ledger([whole, envelope("first", parent_id=whole.id), envelope("second", parent_id=whole.id)])
    cli("events", "export", "--file", "out.jsonl")
    assert cli("events", "import", "out.jsonl", **empty).out == "3 new, 0 duplicate, 0 conflict\n"
    ((new_id, *_), *items) = rows(empty, "id, status, outcome, parent_id")
    assert new_id != whole.id
    assert {(item[1], item[2], item[3]) for item in items} == {("pending", None, new_id)}
    (first, *_) = rows(empty, "status, outcome, parent_id")
    assert first == ("completed", "split", None)


async def test_items_join_a_delivery_that_an_earlier_import_recorded(tmp_path: Path) -> None:
    whole = envelope("delivery", outcome=OutcomeName.SPLIT)
    store = await open_sqlite(tmp_path / "new.db")
    (receipt,) = await record_in(store, [whole])
    work = Import(EventFilter(), lambda count: None, max_body=100, batch_bytes=1)
    old = envelope().id
    text = lines(
        line("delivery", id=old, outcome="split", payload='{"n":1}'), line("item", parent_id=old)
    )
    await work.record(store, io.BytesIO(text.encode()))
    await store.close()
    parents = rows({"DB_PATH": str(tmp_path / "new.db")}, "idempotency_key, parent_id")
    assert parents == [("delivery", None), ("item", receipt.id)]


def test_from_postgresql_back_to_sqlite(cli: Cli, target: str, tmp_path: Path) -> None:
    record(target, RICH)
    cli("events", "export", "--file", "out.jsonl", DATABASE_URL=target)
    cli("migrate")
    assert cli("events", "import", "out.jsonl").out == "6 new, 0 duplicate, 0 conflict\n"
    here = read_ledger(tmp_path / "ackbox.db", f"SELECT {KEPT} FROM events ORDER BY 2")
    there = postgres_rows(target, f"SELECT {KEPT} FROM events ORDER BY 2")
    assert here == there


def record(url: str, sent: list[Envelope]) -> None:
    async def fill() -> None:
        store = await opened(url)
        await record_in(store, sent)
        await store.close()

    asyncio.run(fill())


def test_a_known_key_is_a_duplicate_or_a_conflict(take: Take, empty: dict[str, str]) -> None:
    text = lines(line("a"), line("b"))
    assert take(empty, text).out == "2 new, 0 duplicate, 0 conflict\n"
    text = lines(line("a"), line("b", payload="[]"), line("c"))
    assert take(empty, text).out == "1 new, 1 duplicate, 1 conflict\n"
    assert rows(empty, "idempotency_key, payload") == [("a", b"{}"), ("b", b"{}"), ("c", b"{}")]


BAD = {
    "no JSON": ("{", "not an event in JSON"),
    "no object": ("[]", "not an event in JSON"),
    "no key": ('{"payload": "x"}', "idempotency_key"),
    "no payload": ('{"idempotency_key": "k"}', "either payload or payload_base64"),
    "two payloads": (lines(line(payload_base64="eA==")).strip(), "either payload"),
    "a payload that is no text": (lines(line(payload={})).strip(), "payload"),
    "bad base64": ('{"idempotency_key": "k", "payload_base64": "?"}', "not base64"),
    "another payload": (lines(line(payload_sha256="00")).strip(), "payload_sha256"),
    "a control character": (lines(line("a\nb")).strip(), "control character"),
    "an empty key": (lines(line("")).strip(), "1 to 255 characters"),
    "a state that is none": (lines(line(status="lost")).strip(), "status"),
    "a time without offset": (lines(line(source_emitted_at="2026-01-31T12:00:00")).strip(), "offs"),
    "a number too large": (lines(line(source_sequence=1 << 63)).strip(), "64 bits"),
    "a payload too large": (lines(line(payload="x" * 2000)).strip(), "MAX_BODY_BYTES"),
    "a line too large": (lines(line(payload="x" * 900_000)).strip(), "MAX_BODY_BYTES"),
}


@pytest.mark.parametrize("flaw", BAD)
def test_a_bad_line_is_named_and_the_rest_goes_on(
    take: Take, cli: Cli, tmp_path: Path, flaw: str
) -> None:
    text, reason = BAD[flaw]
    settings = {"DB_PATH": str(tmp_path / "new.db"), "MAX_BODY_BYTES": "1000"}
    cli("migrate", **settings)
    done = take(settings, lines(line("a"), "", text, line("b")))
    assert done.code == 1
    assert done.out == "2 new, 0 duplicate, 0 conflict\n"
    complaint, end = done.err.splitlines()
    assert complaint.startswith("line 3: ")
    assert reason in complaint
    assert end == "ackbox: 1 line was not recorded; the reasons are above."
    assert [key for (key,) in rows(settings, "idempotency_key")] == ["a", "b"]


@pytest.mark.parametrize(
    ("good", "bad", "out", "end"),
    [
        (1, 2, "1 event would be recorded", "2 lines were not recorded"),
        (2, 1, "2 events would be recorded", "1 line was not recorded"),
    ],
)
def test_a_count_of_one_is_singular(
    take: Take, tmp_path: Path, good: int, bad: int, out: str, end: str
) -> None:
    text = lines(*[line(f"k{n}") for n in range(good)], *["no JSON"] * bad)
    done = take({"DB_PATH": str(tmp_path / "new.db")}, text, "--dry-run")
    assert done.out.startswith(out)
    assert end in done.err


def test_a_line_that_is_not_utf_8_is_bad(cli: Cli, ledger: Ledger, tmp_path: Path) -> None:
    ledger([])
    (tmp_path / "in.jsonl").write_bytes(b'{"idempotency_key": "k", "payload": "\xff"}\n')
    assert "not valid UTF-8" in cli("events", "import", "in.jsonl").err


class Spoiling:
    """A ledger that gets every event with this key with a number that no ledger can store."""

    def __init__(self, store: Store, key: str) -> None:
        self._store = store
        self._key = key

    async def record(self, submissions: Sequence[Submission]) -> list[Receipt]:
        return await self._store.record(
            [Submission([self._spoil(sent) for sent in s.envelopes]) for s in submissions]
        )

    def _spoil(self, sent: Envelope) -> Envelope:
        return replace(sent, source_sequence=1 << 70) if sent.idempotency_key == self._key else sent


def import_into(settings: dict[str, str], text: str, spoiled: str = "", **limits: int) -> str:
    """Import without the command itself, and return the counts as it prints them."""

    async def record() -> Counter[str]:
        store = await choose_backend(load(settings, directory=Path.cwd())).open_for_command(utc_now)
        work = Import(EventFilter(), lambda number: None, max_body=1 << 20, **limits)
        try:
            return await work.record(cast("Any", Spoiling(store, spoiled)), BytesIO(text.encode()))
        finally:
            await store.close()

    counts = asyncio.run(record())
    return ", ".join(f"{counts[kind]} {kind}" for kind in ("new", "duplicate", "conflict", "bad"))


def test_an_event_that_the_ledger_refuses_does_not_stop_the_others(
    empty: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    done = import_into(empty, lines(line("a"), line("b"), line("c")), spoiled="b")
    assert done == "2 new, 0 duplicate, 0 conflict, 1 bad"
    assert capsys.readouterr().err.startswith("line 2: The event cannot be stored")


def test_a_status_selects_lines(
    cli: Cli, take: Take, empty: dict[str, str], tmp_path: Path
) -> None:
    path = seed(tmp_path / "s.db", States().seed)
    text = cli("events", "export", DB_PATH=str(path)).out
    assert take(empty, text, "--status", "failed").out == "1 new, 0 duplicate, 0 conflict\n"
    assert take(empty, text, "--status", "error").out == "1 new, 0 duplicate, 0 conflict\n"
    assert rows(empty, "idempotency_key") == [("failed",), ("retrying",)]
    assert take(empty, text).out == f"{len(States().all) - 2} new, 2 duplicate, 0 conflict\n"


def test_an_unknown_status_is_a_usage_error(take: Take, empty: dict[str, str]) -> None:
    assert take(empty, "", "--status", "lost").code == 2


def test_a_dry_run_checks_every_line_and_records_none(take: Take, empty: dict[str, str]) -> None:
    done = take(empty, lines(line("a"), "{", line("b")), "--dry-run")
    assert done.out == "2 events would be recorded, known keys as duplicates\n"
    assert (done.code, done.err.splitlines()[0][:7]) == (1, "line 2:")
    assert rows(empty, "id") == []


def test_many_events_in_their_order_and_again(empty: dict[str, str]) -> None:
    keys = [f"key-{random.Random(n).random()}" for n in range(2500)]
    text = lines(*(line(key, lane="one", payload="x" * (n % 99)) for n, key in enumerate(keys)))
    done = import_into(empty, text, batch_bytes=5000)
    assert done == "2500 new, 0 duplicate, 0 conflict, 0 bad"
    assert import_into(empty, text, batch_bytes=5000) == "0 new, 2500 duplicate, 0 conflict, 0 bad"
    assert [key for (key,) in rows(empty, "idempotency_key")] == keys
    claimable = [key for key, at in rows(empty, "idempotency_key, claimable_at") if at]
    assert claimable == keys[:1]


def test_standard_input(ledger: Ledger, tmp_path: Path) -> None:
    ledger([])
    done = run("events", "import", "-", folder=tmp_path, stdin=lines(line("a")).encode())
    assert done.out == "1 new, 0 duplicate, 0 conflict\n"


def test_a_file_that_is_not_there_is_one_line(cli: Cli, ledger: Ledger) -> None:
    ledger([])
    assert "Cannot read nowhere: No such file" in cli("events", "import", "nowhere").line


def test_a_ledger_that_a_server_holds_is_refused(cli: Cli, ledger: Ledger, tmp_path: Path) -> None:
    lock = LedgerLock(ledger([]))
    lock.describe("http://127.0.0.1:8123")
    (tmp_path / "in.jsonl").write_text(lines(line("a")))
    assert "http://127.0.0.1:8123" in cli("events", "import", "in.jsonl").line
    lock.release()


def test_a_killed_import_is_started_again(cli: Cli, ledger: Ledger, tmp_path: Path) -> None:
    path = ledger([])
    with subprocess.Popen(
        [sys.executable, "-m", "ackbox", "events", "import", "-"],
        cwd=tmp_path,
        env=environment({}),
        stdin=subprocess.PIPE,
    ) as process:
        assert process.stdin
        text = lines(*(line(f"{n}") for n in range(1200)))
        process.stdin.write(text.encode())
        process.stdin.flush()
        count = "SELECT count(*) FROM events"
        while read_ledger(path, count) != [(1000,)]:
            assert process.poll() is None
        process.kill()
    (tmp_path / "in.jsonl").write_text(text)
    assert cli("events", "import", "in.jsonl").out == "200 new, 1000 duplicate, 0 conflict\n"


def test_an_unfinished_promotion_accepts_no_events(cli: Cli, take: Take, target: str) -> None:
    cli("migrate", DATABASE_URL=target)
    sql = "INSERT INTO promotion VALUES (1, 'a.db', 'x', 'events', '[0]', 0, now(), NULL)"
    postgres_rows(target, sql)
    done = take({"DATABASE_URL": target}, lines(line("a")))
    assert "unfinished promotion of a.db" in done.line


def test_exports_of_many_payload_sizes_fit(cli: Cli, ledger: Ledger, empty: dict[str, str]) -> None:
    ledger(envelopes(30, size=40_000))
    cli("events", "export", "--file", "out.jsonl")
    assert cli("events", "import", "out.jsonl", **empty).out.startswith("30 new")
