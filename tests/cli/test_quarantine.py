"""`ackbox quarantine`, with a server and without one."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from ackbox.model import InboundRequest, QuarantineBudget, RefusalReason
from ackbox.stores.sqlite.store import SqliteStore
from support.http.deliveries import GITHUB_KEY, KEYS, TABLES, receiving, signed_by_github
from support.ledgers.refused import refused
from support.ledgers.seeding import seed
from support.servers.cli import Cli
from support.servers.server import read_ledger

AMPLE = QuarantineBudget(1 << 20, 1 << 20)


class Place:
    """A folder with sources, and a ledger with requests in its quarantine."""

    def __init__(self, folder: Path, cli: Cli) -> None:
        self.ledger = folder / "events.db"
        self._cli = cli

    def __call__(self, *arguments: str, **settings: str) -> Any:
        return self._cli("quarantine", *arguments, DB_PATH=str(self.ledger), **KEYS, **settings)

    def events(self) -> list[str]:
        rows = read_ledger(self.ledger, "SELECT idempotency_key FROM events ORDER BY 1")
        return [key for (key,) in rows]

    def ids(self) -> list[int]:
        return [item["id"] for item in json.loads(self("list", "--json").out)["items"]]


def sent(delivery: str, key: str = GITHUB_KEY) -> InboundRequest:
    body = json.dumps({"delivery": delivery}).encode()
    headers = signed_by_github(body, delivery, key=key).items()
    lower = tuple((name.lower(), value) for name, value in headers)
    return InboundRequest("POST", "/in/github", lower, body, datetime.now(UTC), "request-1")


async def fill(store: SqliteStore) -> None:
    requests = [
        replace(refused("github"), request=sent("one")),
        replace(refused("github"), request=sent("two")),
        replace(refused("github"), request=sent("wrong", "another key")),
        replace(refused("gone", reason=RefusalReason.BAD_TIME), request=sent("three")),
    ]
    await store.quarantine.keep(requests, AMPLE)


@pytest.fixture
def alone(tmp_path: Path, cli: Cli) -> Place:
    (cli.folder / "ackbox.toml").write_text(TABLES)
    seed(tmp_path / "there" / "events.db", fill)
    return Place(tmp_path / "there", cli)


@pytest.fixture(params=["alone", "served"])
def place(request: pytest.FixtureRequest, tmp_path: Path, alone: Place) -> Iterator[Place]:
    if request.param == "alone":
        yield alone
        return
    with receiving(tmp_path / "there"):
        yield alone


def test_requests_are_listed(alone: Place) -> None:
    done = alone("list")
    assert done.code == 0, done
    head, *rows = [line.split()[:3] for line in done.out.splitlines()]
    assert head == ["id", "source", "reason"]
    assert rows[0] == ["1", "github", "bad_signature"]
    assert len(rows) == 4
    assert len(alone("list", "--source", "gone").out.splitlines()) == 2
    assert len(alone("list", "--reason", "bad_time").out.splitlines()) == 2
    assert "no requests" in alone("list", "--source", "nobody").err


def test_a_list_continues_at_its_cursor(alone: Place) -> None:
    first = alone("list", "--limit", "3")
    assert "--cursor 3" in first.err
    assert alone("list", "--cursor", "3").out.splitlines()[1].startswith("4")


# F51
def test_a_request_is_shown_without_its_signature(alone: Place) -> None:
    done = alone("show", "1")
    assert done.code == 0, done
    assert "x-github-delivery" in done.out
    assert "(hidden)" in done.out
    assert sent("one").header("x-hub-signature-256") not in done.out
    assert done.out.rstrip().endswith('{"delivery": "one"}')
    assert json.loads(alone("show", "1", "--json").out)["headers"][0][0] == "content-type"
    assert "no request 99" in alone("show", "99").line


TOKEN_TABLE = """
[sources.github]
preset = "header"
header = "X-GitHub-Delivery"
secret = "env:GITHUB_KEY"
"""


# F51
def test_the_header_that_a_source_declares_for_its_token_is_hidden(alone: Place, cli: Cli) -> None:
    def headers(number: str) -> dict[str, str]:
        return dict(json.loads(alone("show", number, "--json").out)["headers"])

    assert headers("1")["x-github-delivery"] == "one"
    assert headers("4")["x-github-delivery"] == "(hidden)", "its source is not declared"
    assert headers("4")["content-type"] == "application/json"
    (cli.folder / "ackbox.toml").write_text(TOKEN_TABLE)
    assert headers("1")["x-github-delivery"] == "(hidden)"
    assert headers("1")["x-github-event"] == "push"
    (cli.folder / "ackbox.toml").write_text(TOKEN_TABLE.replace("preset", "perset"))
    assert headers("1")["x-github-delivery"] == "(hidden)", "its table is wrong"


def test_requests_are_released_by_filter(place: Place) -> None:
    dry = place("release", "--all", "--dry-run")
    assert dry.out == (
        "4 requests: 2 would be released, 0 duplicates, 1 failed again, 1 of undeclared sources\n"
    )
    assert place.events() == []
    done = place("release", "--source", "github")
    assert done.out == (
        "3 requests: 2 released, 0 duplicates, 1 failed again, 0 of undeclared sources\n"
    )
    assert place.events() == ["one", "two"]
    assert place.ids() == [3, 4]
    audit = read_ledger(place.ledger, "SELECT action, actor FROM audit")
    assert [action for action, _ in audit] == ["quarantine"] * 2
    assert all(str(actor).startswith("cli ") for _, actor in audit)


def test_named_requests_are_released(place: Place) -> None:
    done = place("release", "1")
    assert done.code == 0, done
    assert done.out.startswith("1  released as event ")
    assert place.events() == ["one"]
    failed = place("release", "2", "3", "4", "99")
    assert failed.code == 1
    assert [line.split("  ")[1].split(":")[0] for line in failed.out.splitlines()] == [
        *(failed.out.splitlines()[0].split("  ")[1].split(":")[0], "refused", "refused", "refused"),
    ]
    assert "is not declared" in failed.out
    assert "it is not in the quarantine" in failed.out
    assert place.events() == ["one", "two"]


def test_requests_are_dropped(place: Place) -> None:
    assert place("drop", "--all", "--dry-run").out == "4 requests would be dropped\n"
    assert place("drop", "1").out == "1  dropped\n"
    assert place("drop", "1").code == 1
    assert "confirm with --yes" in place("drop", "--all").line
    assert place("drop", "--source", "github", "--yes").out == "2 requests dropped\n"
    assert place.ids() == [4]
    assert place.events() == []


def test_a_source_that_code_declares_is_found(tmp_path: Path, alone: Place, cli: Cli) -> None:
    (cli.folder / "ackbox.toml").write_text("")
    (cli.folder / "declared_app.py").write_text(
        "from ackbox import Inbox\n"
        "inbox = Inbox()\n"
        'inbox.source("github", preset="github", secret="env:GITHUB_KEY")\n'
    )
    without = alone("release", "--source", "github")
    assert "3 of undeclared sources" in without.out
    done = alone("release", "--source", "github", "--inbox", "declared_app:inbox")
    assert done.out.startswith("3 requests: 2 released"), done


@pytest.mark.parametrize(
    "arguments",
    [
        ("release",),
        ("drop",),
        ("release", "1", "--all"),
        ("drop", "1", "--source", "github"),
        ("release", "--all", "--source", "github"),
        ("release", "--reason", "other"),
        ("list", "--reason", "other"),
        ("show", "1", "--raw", "--json"),
        ("show", "0"),
    ],
)
def test_a_wrong_selection_is_refused(alone: Place, arguments: tuple[str, ...]) -> None:
    assert alone(*arguments).code == 2
    assert len(alone.ids()) == 4
