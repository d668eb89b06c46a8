"""A ledger that is moved or removed under a running server: SQLite itself would keep writing to
it."""

from contextlib import closing
from pathlib import Path

import apsw
import pytest

from ackbox.errors import OutcomeUnknown, Unavailable
from ackbox.stores.sqlite.lock import find_holder, has_lost_its_name
from ackbox.telemetry import StoreFailed, StoreRecovered
from support.ledgers.backends import OpenStore
from support.ledgers.events import envelope, envelopes, record_in
from support.ledgers.facts import Facts, Fatal
from support.time.polling import until

AFTER_THE_MOVE = (OutcomeUnknown, Unavailable)
"""The errors of the first two writes. The first write is committed, into a file that is not in its
place: nobody knows whether it is kept. The second write is refused before it begins."""


# F54
async def test_nothing_is_acknowledged_into_a_ledger_that_is_gone(
    open_it: OpenStore, path: Path, facts: Facts
) -> None:
    store = await open_it()
    path.rename(path.with_suffix(".away"))
    for error in AFTER_THE_MOVE:
        with pytest.raises(error, match="ackbox backup"):
            await record_in(store, [envelope("new")])
    assert store.unavailable_reason is not None
    assert len(facts.of(StoreFailed)) == 1

    path.with_suffix(".away").rename(path)
    await record_in(store, [envelope("new")])
    assert store.unavailable_reason is None
    assert len(facts.of(StoreRecovered)) == 1


# F54
async def test_a_ledger_that_is_gone_is_noticed_while_nothing_is_written(
    open_it: OpenStore, path: Path
) -> None:
    store = await open_it()
    path.rename(path.with_suffix(".away"))
    store.disk_space.check()
    await until(lambda: store.unavailable_reason is not None)
    path.with_suffix(".away").rename(path)
    store.disk_space.check()
    await until(lambda: store.unavailable_reason is None)


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_moved_ledger_that_was_checkpointed_meanwhile_can_be_moved_back(
    open_it: OpenStore, path: Path, fatal: Fatal, is_replaced: bool
) -> None:  # F54
    store = await open_it(durability="normal")
    path.rename(path.with_suffix(".away"))
    if is_replaced:
        path.write_bytes(bytes(16 * 1024 * 1024))
    for error in AFTER_THE_MOVE:  # so many pages that a checkpoint follows the first commit
        with pytest.raises(error):
            await record_in(store, envelopes(1500, size=3000))

    path.with_suffix(".away").rename(path)
    await record_in(store, [envelope("new")])
    assert (store.unavailable_reason, fatal) == (None, [])


# F54
async def test_another_file_of_the_same_name_is_not_the_ledger(
    open_it: OpenStore, path: Path
) -> None:
    store = await open_it()
    path.rename(path.with_suffix(".away"))
    path.write_bytes(path.with_suffix(".away").read_bytes())
    for error in AFTER_THE_MOVE:
        with pytest.raises(error):
            await record_in(store, [envelope("new")])


async def test_the_events_of_a_removed_ledger_can_be_saved(
    open_it: OpenStore, path: Path, tmp_path: Path
) -> None:
    store = await open_it()
    await record_in(store, [envelope("kept")])
    path.unlink()
    with pytest.raises(OutcomeUnknown):
        await record_in(store, [envelope("refused")])
    saved = tmp_path / "saved.db"
    async for _ in store.backup(saved):
        pass
    with closing(apsw.Connection(str(saved))) as copy:
        assert copy.execute("SELECT idempotency_key FROM events").fetchall() == [
            ("kept",),
            ("refused",),  # its outcome was unknown to the sender
        ]


# F54
async def test_other_processes_learn_that_it_is_gone_before_its_address_is_known(
    open_it: OpenStore, path: Path
) -> None:
    await open_it()
    holder = find_holder(path)
    assert holder is not None
    assert holder.url is None
    assert not has_lost_its_name(path, holder)
    path.unlink()
    assert has_lost_its_name(path, holder)
