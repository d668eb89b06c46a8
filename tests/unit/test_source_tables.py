"""Sources in the settings file: tables are kept as written, and secrets are references (F51)."""

from pathlib import Path

import pytest

from ackbox.config import SourceTable, read_secret
from ackbox.config.loader import Resolved, resolve
from ackbox.errors import SettingError


def read(folder: Path, text: str, *coded: SourceTable) -> Resolved:
    (folder / "ackbox.toml").write_text(text)
    tables = {table.name: table for table in coded}
    return resolve({}, directory=folder, sources=tables)


def test_a_file_has_settings_and_tables_of_sources(tmp_path: Path) -> None:
    resolved = read(tmp_path, 'port = 8001\n[sources.shop]\npreset = "hmac"\n')
    assert resolved.settings.port == 8001
    assert resolved.sources == {"shop": SourceTable("shop", {"preset": "hmac"}, "ackbox.toml")}


def test_code_adds_sources_to_those_of_the_file(tmp_path: Path) -> None:
    coded = SourceTable("chat", {"preset": "slack"}, "inbox.source('chat')")
    resolved = read(tmp_path, "[sources.shop]\n", coded)
    assert sorted(resolved.sources) == ["chat", "shop"]
    with pytest.raises(SettingError, match=r"shop is declared twice, in ackbox.toml and x"):
        read(tmp_path, "[sources.shop]\n", SourceTable("shop", {}, "x"))


@pytest.mark.parametrize("text", ["sources = 3", "[[sources]]", "[sources]\ngithub = 3"])
def test_sources_that_are_no_tables_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingError, match=r"sources.* in ackbox.toml must .*\[sources.github\]"):
        read(tmp_path, text)


def test_a_secret_comes_from_the_environment_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"s3cret\xff\r\n")
    environ = {"KEY": "s3cret\n"}
    assert read_secret("env:KEY", environ, tmp_path) == b"s3cret"
    assert read_secret("file:key", environ, tmp_path) == b"s3cret\xff"
    assert read_secret(f"file:{tmp_path / 'key'}", environ, Path("/")) == b"s3cret\xff"


@pytest.mark.parametrize(
    ("reference", "line"),
    [
        ("env:NONE", "NONE is not set in the environment, or is empty: set it."),
        ("env:EMPTY", "EMPTY is not set in the environment, or is empty: set it."),
        ("file:none", "none cannot be read: No such file or directory."),
        ("file:empty", "empty is empty: write the secret into it."),
        ("file:a\0b", "a\\x00b cannot be read: it is not a path."),
    ],
)
def test_a_missing_secret_says_where_it_was_looked_for(
    tmp_path: Path, reference: str, line: str
) -> None:
    (tmp_path / "empty").write_bytes(b"\n")
    with pytest.raises(SettingError) as refusal:
        read_secret(reference, {"EMPTY": ""}, tmp_path)
    assert str(refusal.value) == line


def test_a_file_that_is_too_large_for_a_secret_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"k" * 65536)
    assert len(read_secret("file:key", {}, tmp_path)) == 65536
    (tmp_path / "key").write_bytes(b"k" * 65537)
    with pytest.raises(SettingError, match=r"^key is larger than 64 KiB: a file with only the"):
        read_secret("file:key", {}, tmp_path)


def test_a_table_does_not_show_its_words() -> None:
    assert "hunter2" not in repr(SourceTable("shop", {"secret": "hunter2"}, "ackbox.toml"))
