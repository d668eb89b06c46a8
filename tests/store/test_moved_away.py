"""A ledger moved or removed under a running server: SQLite would go on writing for nobody."""

from contextlib import closing
from pathlib import Path

import apsw
import pytest

from ackbox.errors import Unavailable
from ackbox.telemetry import StoreRecovered, StoreTrouble
from support.backends import OpenStore
from support.events import envelope
from support.facts import Facts


async def test_nothing_is_acknowledged_into_a_ledger_that_is_gone(
    open_it: OpenStore, path: Path, facts: Facts
) -> None:
    store = await open_it()
    path.rename(path.with_suffix(".away"))
    store.check_room()
    store.check_room()
    with pytest.raises(Unavailable, match="ackbox backup"):
        await store.record([envelope("new")])
    assert store.trouble is not None
    assert len(facts.of(StoreTrouble)) == 1

    path.with_suffix(".away").rename(path)
    store.check_room()
    assert store.trouble is None
    assert len(facts.of(StoreRecovered)) == 1
    await store.record([envelope("new")])


async def test_another_file_in_its_place_is_not_the_ledger(open_it: OpenStore, path: Path) -> None:
    store = await open_it()
    path.rename(path.with_suffix(".away"))
    path.touch()
    store.check_room()
    with pytest.raises(Unavailable):
        await store.record([envelope("new")])


async def test_what_the_server_still_holds_can_be_saved(
    open_it: OpenStore, path: Path, tmp_path: Path
) -> None:
    store = await open_it()
    await store.record([envelope("kept")])
    path.unlink()
    store.check_room()
    saved = tmp_path / "saved.db"
    async for _ in store.backup(saved):
        pass
    with closing(apsw.Connection(str(saved))) as copy:
        assert copy.execute("SELECT idempotency_key FROM events").fetchall() == [("kept",)]
