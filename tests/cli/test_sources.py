"""`ackbox sources` and `ackbox send --source`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.http.deliveries import (
    KEYS,
    TABLES,
    receiving,
    signed_by_github,
    signed_by_stripe,
    stripe_event,
)
from support.servers.cli import Cli
from support.servers.server import Server, read_ledger

CODE = """
from ackbox import Inbox
inbox = Inbox()
inbox.source("coded", preset="github", secret="env:GITHUB_KEY")
"""


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with receiving(tmp_path_factory.mktemp("receiver")) as server:
        yield server


@pytest.fixture(autouse=True)
def _tables(cli: Cli) -> None:
    (cli.folder / "ackbox.toml").write_text(TABLES)


def record(path: Path, headers: dict[str, str], body: bytes, *, end: str = "\r\n") -> str:
    lines = ["POST /in/x HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    path.write_bytes((end.join(lines) + end * 2).encode() + body)
    return str(path)


def test_the_list_shows_references_and_no_secret(cli: Cli) -> None:  # F51
    done = cli("sources", "list", **KEYS)
    rows = [line.split()[:5] for line in done.out.splitlines()]
    assert rows[1:] == [
        ["github", "/in/github", "github", "yes", "env:GITHUB_KEY"],
        ["twin", "/in/twin", "github", "yes", "env:STRIPE_KEY"],
        ["stripe", "/in/stripe", "stripe", "yes", "env:STRIPE_KEY"],
        ["anyone", "/in/anyone", "none", "no", "-"],
    ]
    assert not any(secret in done.out for secret in KEYS.values())
    assert json.loads(cli("sources", "list", "--json").out)[0]["origin"] == "ackbox.toml"


def test_the_list_has_the_sources_of_the_code(cli: Cli) -> None:
    (cli.folder / "ackbox.toml").unlink()
    (cli.folder / "coded_sources.py").write_text(CODE)
    assert cli("sources", "list").out.startswith("No source is declared.")
    done = cli("sources", "list", "--inbox", "coded_sources:inbox")
    assert "inbox.source('coded')" in done.out


def test_check_reports_table_and_secret(cli: Cli) -> None:
    done = cli("sources", "check", "github", **KEYS)
    assert done.code == 0
    table, secret = (line.split(maxsplit=2) for line in done.out.splitlines())
    assert table == ["ok", "table", "preset github, declared in ackbox.toml"]
    assert secret == ["ok", "secret", "env:GITHUB_KEY can be read"]
    warned = cli("sources", "check", "anyone")
    assert (warned.code, warned.out.split()[0]) == (0, "warn")


def test_check_reports_what_is_wrong(cli: Cli) -> None:
    missing = cli("sources", "check", "github")
    assert missing.code == 1
    assert "GITHUB_KEY is not set in the environment" in missing.out
    assert "There is no source other." in cli("sources", "check", "other", **KEYS).line
    (cli.folder / "ackbox.toml").write_text('[sources.github]\npreset = "githbu"\n')
    wrong = cli("sources", "check", "github", **KEYS)
    assert wrong.code == 1
    assert 'preset = "githbu" is not valid: one of basic, bearer,' in wrong.out


@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_check_verifies_a_recorded_request(cli: Cli, end: str) -> None:
    headers = {**signed_by_github(b"{\n\n}", "delivery-1"), "Content-Length": "4"}
    sample = record(cli.folder / "sample", headers, b"{\n\n}\n", end=end)
    done = cli("sources", "check", "github", "--sample", sample, **KEYS)
    assert (done.code, "verified: key delivery-1, type push" in done.out) == (0, True)
    other = cli("sources", "check", "github", "--sample", sample, GITHUB_KEY="another")
    assert (other.code, "bad_signature: The signature does not match" in other.out) == (1, True)


def test_check_judges_a_signed_time_by_the_time_of_arrival(cli: Cli) -> None:
    body = stripe_event("evt_1")
    sample = record(cli.folder / "sample", signed_by_stripe(body), body)
    late = cli("sources", "check", "stripe", "--sample", sample, "--at", "2h", **KEYS)
    assert (late.code, "Give --at, the time when the sample arrived." in late.out) == (1, True)
    assert cli("sources", "check", "stripe", "--sample", sample, **KEYS).code == 0
    assert cli("sources", "check", "stripe", "--sample", sample, "--at", "soon", **KEYS).code == 2


def test_a_file_that_is_no_request_is_refused(cli: Cli) -> None:
    (cli.folder / "sample").write_text("hello\n")
    done = cli("sources", "check", "github", "--sample", "sample", **KEYS)
    assert "sample is not a recorded request" in done.line
    assert "Cannot read none" in cli("sources", "check", "github", "--sample", "none").line


def test_send_signs_a_delivery_as_the_sender_would(cli: Cli, receiver: Server) -> None:
    where = {"DB_PATH": str(receiver.ledger), **KEYS}
    options = ("--source", "github", "--key", "sent-1")
    first, second = (cli("send", "issues.opened", *options, **where) for _ in range(2))
    assert (first.out.split()[0], second.out.split()[0]) == ("new", "duplicate")
    sql = "SELECT event_type, payload FROM events WHERE idempotency_key = 'sent-1'"
    assert read_ledger(receiver.ledger, sql) == [("issues.opened", b'{"action":"opened"}')]


def test_send_delivers_the_given_bytes_to_any_source(cli: Cli, receiver: Server) -> None:
    where = {"DB_PATH": str(receiver.ledger), **KEYS}
    (cli.folder / "body").write_bytes(b"\xff\x00")
    done = cli("send", "--source", "twin", "--file", "body", "--count", "2", **where)
    assert done.out.startswith("new")
    assert cli("send", "--source", "stripe", "--count", "2", **where).out.count("new") == 2
    assert cli("send", "--source", "github", "--lane", "x", **where).code == 2


def test_send_with_a_wrong_secret_is_refused(cli: Cli, receiver: Server) -> None:
    done = cli("send", "--source", "github", DB_PATH=str(receiver.ledger), GITHUB_KEY="wrong")
    assert "401 Unauthorized: The signature does not match" in done.line


def test_send_to_webhooks_beside_a_signed_source_says_what_to_do(
    cli: Cli, receiver: Server
) -> None:
    assert "set ACKBOX_INGEST_TOKEN" in cli("send", "x", DB_PATH=str(receiver.ledger)).line


def test_doctor_warns_of_a_source_that_verifies_nothing(cli: Cli) -> None:
    done = cli("doctor", **KEYS)
    assert "Anyone can send events as the source anyone" in done.out
    (cli.folder / "ackbox.toml").write_text('[sources.a]\npreset = "x"\n')
    assert "[sources.a] in ackbox.toml: preset" in cli("doctor").out


def test_a_wrong_table_stops_the_start_with_one_line(cli: Cli) -> None:
    line = cli("serve", PORT="0").line
    assert line.startswith("[sources.github] in ackbox.toml: secret: GITHUB_KEY is not set")
    (cli.folder / "ackbox.toml").write_text('[sources.github]\npreset = "githbu"\n')
    assert 'preset = "githbu" is not valid: one of basic,' in cli("serve", PORT="0").line


SPECIAL = """
[sources.paddle]
preset = "paddle"
secret = "env:STRIPE_KEY"

[sources.twilio]
preset = "twilio"
secret = "env:STRIPE_KEY"
public_url = "https://example.com/in/twilio"
"""


def test_send_understands_the_responses_that_only_some_senders_get(
    cli: Cli, tmp_path: Path
) -> None:
    (cli.folder / "ackbox.toml").write_text(SPECIAL)
    with receiving(tmp_path / "server", SPECIAL) as server:
        where = {"DB_PATH": str(server.ledger), **KEYS}
        paddle = [cli("send", "--source", "paddle", "--key", "k", **where) for _ in range(2)]
        assert [done.out.split()[0] for done in paddle] == ["new", "duplicate"]
        assert cli("send", "--source", "twilio", **where).out.startswith("accepted   202")


def test_send_says_which_arguments_a_delivery_has_no_place_for(cli: Cli, receiver: Server) -> None:
    where = {"DB_PATH": str(receiver.ledger), **KEYS}
    given = ("send", "invoice.paid", "--source", "stripe", "--key", "evt_7")
    assert cli(*given, **where).err == ""
    done = cli(*given, "--payload", '{"id": "evt_8", "type": "charge"}', "--count", "2", **where)
    assert done.err.splitlines() == [
        "--key evt_7 is not used: this delivery has the key evt_8",
        "TYPE invoice.paid is not used: this delivery has the type charge",
    ]
    assert cli("send", "--source", "stripe", "--payload", "{}", **where).err == ""
