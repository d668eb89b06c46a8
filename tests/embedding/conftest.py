"""Fixtures for an inbox inside another app."""

from pathlib import Path
from typing import Any

import pytest

TOKEN = "twelve-boxers-hunt-victor"


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    """Return the settings that the app sets in code."""
    return {"db_path": tmp_path / "inbox.db", "api_token": TOKEN}
