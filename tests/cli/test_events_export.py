"""`ackbox events export` (L11, L13)."""

import json
import resource
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.ledgers.events import envelope, envelopes
from support.ledgers.seeding import States, seed
from support.servers.cli import Cli, Ledger
from support.servers.server import running


def exported(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_every_event_is_a_line_oldest_first(cli: Cli, ledger: Ledger) -> None:
    sent = [envelope(f"{n}", b'{"n": %d}' % n) for n in range(1200)]
    ledger(sent)
    done = cli("events", "export")
    lines = exported(done.out)
    assert [line["id"] for line in lines] == [event.id for event in sent]
    assert [line["payload"] for line in lines] == [event.payload.decode() for event in sent]
    assert done.err == "1200 events exported\n"


def test_a_payload_that_is_no_text_is_exact_too(cli: Cli, ledger: Ledger) -> None:
    ledger([envelope("k", b"\xff\x00\x1b")])
    (line,) = exported(cli("events", "export").out)
    assert b64decode(line["payload_base64"]) == b"\xff\x00\x1b"
    assert "payload" not in line


def test_filters_select_events(cli: Cli, tmp_path: Path) -> None:
    path = seed(tmp_path / "s.db", States().seed)
    rows = exported(cli("events", "export", "--status", "failed", DB_PATH=str(path)).out)
    assert [line["idempotency_key"] for line in rows] == ["failed"]
    assert rows[0]["error_code"] == "boom"


def test_a_file_appears_whole_and_for_its_owner_alone(
    cli: Cli, ledger: Ledger, tmp_path: Path
) -> None:
    ledger(envelopes(3))
    done = cli("events", "export", "--file", "out.jsonl")
    assert (done.code, done.out) == (0, "")
    assert len(exported((tmp_path / "out.jsonl").read_text("utf-8"))) == 3
    assert (tmp_path / "out.jsonl").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "out.jsonl.part").exists()


def test_nothing_is_overwritten(cli: Cli, ledger: Ledger, tmp_path: Path) -> None:
    ledger(envelopes(3))
    (tmp_path / "out.jsonl").write_text("precious")
    assert "exists already" in cli("events", "export", "--file", "out.jsonl").line
    assert (tmp_path / "out.jsonl").read_text() == "precious"


def test_a_broken_export_leaves_nothing(cli: Cli, ledger: Ledger, tmp_path: Path) -> None:
    ledger(envelopes(3, size=50_000))
    with files_of_at_most(100_000):
        assert "out.jsonl: File too large" in cli("events", "export", "--file", "out.jsonl").line
    assert not list(tmp_path.glob("out.jsonl*"))


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let the system refuse to write more, as it does on a full disk."""
    limit, hard_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard_limit))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard_limit))


# L13
def test_a_server_may_run(cli: Cli, tmp_path: Path) -> None:
    with running(tmp_path / "server") as server:
        server.post({"idempotency_key": "one", "payload": 1})
        (line,) = exported(cli("events", "export", DB_PATH=str(server.ledger)).out)
    assert line["idempotency_key"] == "one"
