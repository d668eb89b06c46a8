"""An inbox inside somebody else's app."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from ackbox.config import Settings

TOKEN = "twelve-boxers-hunt-victor"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(db_path=tmp_path / "inbox.db", api_token=SecretStr(TOKEN))
