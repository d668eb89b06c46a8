"""F1: `202` means that a power cut in the next instant keeps it.

The real store runs through a VFS that records every write and sync. Then the files are rebuilt as a
power cut at some moment would have left them, and opened. `normal` is the control: it must lose
acknowledged events, or the test could not see a loss.
"""

import asyncio
import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import apsw
import pytest

from ackbox.model import Envelope
from ackbox.stores.sqlite.files import _build, open_ledger
from ackbox.stores.sqlite.limits import Limits
from ackbox.stores.sqlite.store import SqliteStore
from support.faults.recording_vfs import MODES, Disk, RecordingVfs, recording_vfs
from support.ledgers.backends import open_sqlite
from support.ledgers.events import envelope, record_in

RUNS, CUTS = 4, 140  # with four modes each: 2240 images
CALLERS, CALLS = 4, 12
LEDGER = "ledger.db"


class Ack(NamedTuple):
    """Acknowledged envelopes, and the number of operations before the acknowledgement."""

    at: int
    envelopes: Sequence[Envelope]


class Verdict(NamedTuple):
    images: int
    lossy: int
    damaged: int
    checkpoints: int


SMALL = Limits(checkpoint_pages=30, alarm_pages=60, log_bytes_kept=40 * 4096)
"""Limits that cause many checkpoints of every kind, and logs that restart and are truncated."""


async def run_store(path: Path, vfs: RecordingVfs, durability: str, chance: Random) -> list[Ack]:
    store = await open_sqlite(path, durability=durability, vfs=vfs.name, limits=SMALL)
    acks: list[Ack] = []
    await asyncio.gather(*[call(store, n, vfs, acks, chance) for n in range(CALLERS)])
    await store.close()
    return acks


async def call(
    store: SqliteStore, caller: int, vfs: RecordingVfs, acks: list[Ack], chance: Random
) -> None:
    for n in range(CALLS):
        size = chance.choice((1, 1, 2, 5, 17, 64))
        batch = [
            envelope(f"{caller}-{n}-{k}", chance.randbytes(chance.randrange(400)))
            for k in range(size)
        ]
        known = chance.choice(acks).envelopes[:1] if acks else ()  # a repeat updates its row
        again = [envelope(sent.idempotency_key, sent.payload) for sent in known]
        await record_in(store, [*again, *batch])
        acks.append(Ack(len(vfs.ops), batch))


def cut_points(vfs: RecordingVfs, chance: Random) -> list[int]:
    """Return the moments of the cuts. Half of them are just before or after a sync, where events
    are acknowledged."""
    syncs = [n for n, op in enumerate(vfs.ops) if op.kind == "sync"]
    near = [min(n + chance.randrange(2), len(vfs.ops)) for n in chance.choices(syncs, k=CUTS // 2)]
    return sorted(near + [chance.randrange(len(vfs.ops) + 1) for _ in range(CUTS - len(near))])


def images(vfs: RecordingVfs, chance: Random) -> Iterator[tuple[int, dict[str, bytearray]]]:
    disk, done = Disk(vfs.initial), 0
    for cut in cut_points(vfs, chance):
        for op in vfs.ops[done:cut]:
            disk.do(op)
        done = cut
        for mode in MODES:
            yield cut, disk.after_power_cut(mode, chance)


def open_image(path: Path, *, through_the_store: bool) -> apsw.Connection:
    if through_the_store:
        return open_ledger(path, durability="full")
    connection = apsw.Connection(str(path))
    connection.pragma("synchronous", "off")  # a copy for one check need not be synced
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    return connection


def read_events(folder: Path, *, through_the_store: bool) -> dict[str, bytes] | None:
    """Return the payloads by key; None if the ledger is damaged."""
    opened = open_image(folder / LEDGER, through_the_store=through_the_store)
    with closing(opened) as connection:
        if connection.pragma("integrity_check") != "ok":
            return None
        rows: Any = connection.execute("SELECT idempotency_key, payload FROM events").fetchall()
        count = connection.execute("SELECT events FROM status_counts WHERE status = 'pending'").get
        return dict(rows) if count == len(rows) else None


def judge(vfs: RecordingVfs, acks: list[Ack], folder: Path, chance: Random) -> Verdict:
    count = lossy = damaged = 0
    for count, (cut, files) in enumerate(images(vfs, chance), 1):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, content in files.items():
            (folder / name).write_bytes(content)
        stored = read_events(folder, through_the_store=count % 10 == 0)
        if stored is None:
            damaged += 1
            continue
        due = [sent for ack in acks if ack.at <= cut for sent in ack.envelopes]
        lossy += any(stored.get(sent.idempotency_key) != sent.payload for sent in due)
    synced = sum(op.kind == "sync" and op.file == LEDGER for op in vfs.ops)
    return Verdict(count, lossy, damaged, synced)


async def cut_power(tmp_path: Path, durability: str, seed: int) -> Verdict:
    chance = Random(seed)
    with recording_vfs() as vfs:
        acks = await run_store(tmp_path / LEDGER, vfs, durability, chance)
        return judge(vfs, acks, tmp_path / "image", chance)


@pytest.mark.parametrize("seed", range(RUNS))
async def test_no_power_cut_loses_an_acknowledged_event(tmp_path: Path, seed: int) -> None:  # F1
    verdict = await cut_power(tmp_path, "full", seed)
    assert verdict.images * RUNS >= 2000
    assert verdict.checkpoints >= 5
    assert (verdict.lossy, verdict.damaged) == (0, 0)


def test_a_new_ledger_is_on_the_disk_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # F1
    draft = tmp_path / LEDGER
    with recording_vfs() as vfs:
        monkeypatch.setattr(apsw, "Connection", partial(apsw.Connection, vfs=vfs.name))
        _build(draft)
        monkeypatch.undo()
        disk = Disk({})
        for op in vfs.ops:
            disk.do(op)
        left = disk.after_power_cut("none", Random(0))
    assert left[LEDGER] == draft.read_bytes()


async def test_with_normal_durability_the_same_cuts_lose_acknowledged_events(
    tmp_path: Path,
) -> None:  # F1: the control
    verdict = await cut_power(tmp_path, "normal", seed=99)
    assert verdict.lossy > 20
    assert verdict.damaged == 0
