"""N3: the settings of the app around an inbox are not the inbox's."""

from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from ackbox import Inbox
from ackbox.errors import SettingError


def started(inbox: Inbox) -> None:
    app = FastAPI(lifespan=inbox.lifespan)
    app.mount("/inbox", inbox.asgi())
    with TestClient(app) as client:
        assert client.get("/inbox/ready").status_code == 200


# N3
def test_an_embedded_inbox_leaves_the_apps_own_variables_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATABASE_URL", "postgresql://127.0.0.1:1/of_the_app")
    monkeypatch.setenv("LOG_LEVEL", "verbose")
    monkeypatch.setenv("DB_PATH", "theirs.db")
    monkeypatch.setenv("ACKBOX_DB_PATH", "inbox.db")
    started(Inbox())
    assert (tmp_path / "inbox.db").exists()
    assert not (tmp_path / "theirs.db").exists()


# N3
def test_an_embedded_inbox_reads_the_settings_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ackbox.toml").write_text('db_path = "from-file.db"\n')
    monkeypatch.chdir(tmp_path)
    started(Inbox())
    assert (tmp_path / "from-file.db").exists()


# N3
def test_a_misspelt_variable_stops_the_start_of_the_app_and_not_its_import(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACKBOX_WORKERS", "3")
    inbox = Inbox(settings)
    with pytest.raises(SettingError, match="ACKBOX_WORKERS in the environment is not a setting"):
        started(inbox)
    assert not settings["db_path"].exists()
