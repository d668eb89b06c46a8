"""ADR 3: how often a commit syncs, counted under SQLite, with the store's own pragmas."""
# ruff: noqa: T201

from pathlib import Path
from tempfile import TemporaryDirectory

import apsw

from ackbox.stores.sqlite.connections import open_writer
from ackbox.stores.sqlite.files import create_ledger

COMMITS = 100


class CountingFile(apsw.VFSFile):
    syncs = 0

    def __init__(self, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("", name, flags)

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        CountingFile.syncs += 1
        super().xSync(flags)


class CountingVfs(apsw.VFS):
    def __init__(self) -> None:
        super().__init__("counting", "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> CountingFile:  # noqa: N802
        return CountingFile(name, flags)


def syncs_of(durability: str) -> int:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        create_ledger(path)
        connection = open_writer(path, durability=durability, vfs="counting")
        connection.execute("INSERT INTO write_probe VALUES (1, '')")
        before = CountingFile.syncs
        for number in range(COMMITS):
            connection.execute("UPDATE write_probe SET probed_at = ?", (str(number),))
        syncs = CountingFile.syncs - before
        connection.close()
    return syncs


if __name__ == "__main__":
    vfs = CountingVfs()
    for durability in ("full", "normal"):
        print(f"{durability}: {syncs_of(durability)} syncs for {COMMITS} commits")
