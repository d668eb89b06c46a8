"""`ackbox work`: refusals before the start, and its address."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from ackbox.config import Given, Settings
from ackbox.inbox import Inbox
from support.servers.cli import Cli

APP = "from ackbox import Inbox\ninbox = Inbox()\n"
NOWHERE = "postgresql://127.0.0.1:1/events"


@pytest.fixture
def target(tmp_path: Path) -> str:
    """A module of its own: an earlier import would keep its earlier settings."""
    (tmp_path / f"{tmp_path.name}.py").write_text(APP)
    return f"{tmp_path.name}:inbox"


def test_on_sqlite_it_is_refused_with_what_to_do_instead(
    cli: Cli, target: str, tmp_path: Path
) -> None:
    line = cli("work", target).line
    assert "`ackbox serve`" in line
    assert "DATABASE_URL" in line
    assert not (tmp_path / "ackbox.db").exists()


def test_without_workers_there_is_nothing_for_it_to_do(cli: Cli, target: str) -> None:
    line = cli("work", target, DATABASE_URL=NOWHERE, WORKER_COUNT="0").line
    assert "WORKER_COUNT" in line


def test_without_handlers_it_would_complete_what_others_handle(cli: Cli) -> None:
    done = cli("work", DATABASE_URL=NOWHERE)
    assert done.code == 2
    assert "MODULE:INBOX" in done.err


def test_a_bad_target_is_one_line(cli: Cli) -> None:
    assert "no module nowhere" in cli("work", "nowhere:inbox", DATABASE_URL=NOWHERE).line


# N24
def test_the_probes_listen_where_the_command_line_says(
    cli: Cli, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    working: list[Settings] = []

    def work(inbox: Inbox, overrides: Mapping[str, Given]) -> int:
        working.append(inbox.resolve(overrides).settings)
        return 0

    monkeypatch.setattr(Inbox, "work", work)
    cli("work", target, "--host", "::1", "--port", "9000", DATABASE_URL=NOWHERE, PORT="9001")
    assert [(settings.host, settings.port) for settings in working] == [("::1", 9000)]
