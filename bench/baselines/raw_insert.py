"""The ceiling of the batch route: the same rows into the same tables, with nothing around it.

`python -m bench.baselines.raw_insert FILE` fills a file made by `ackbox migrate`. Only insert and
commit are timed; making the rows is not, so ackbox is held against the bare database.
"""

import argparse
import itertools
import json
import secrets
import time

import apsw

from bench import rows, traffic


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.baselines.raw_insert")
    parser.add_argument("file")
    parser.add_argument("--rows", type=int, default=1000, help="per transaction")
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    print(json.dumps(_insert_for(_open(options.file), options.rows, options.seconds)))


def _open(file: str) -> apsw.Connection:
    connection = apsw.Connection(file, flags=apsw.SQLITE_OPEN_READWRITE)
    mode = connection.execute("PRAGMA journal_mode = WAL").get
    connection.execute("PRAGMA synchronous = FULL")
    assert mode == "wal", f"expected WAL, got {mode}"
    return connection


def _insert_for(connection: apsw.Connection, size: int, seconds: float) -> dict[str, float]:
    source = rows.pending(secrets.token_hex(traffic.RUN_ID_LENGTH // 2))
    inserted, wall, cpu = 0, 0.0, 0.0
    while wall < seconds:
        batch = list(itertools.islice(source, size))
        started, cpu_started = time.perf_counter(), time.process_time()
        with connection:
            connection.executemany(rows.INSERT, batch)
        wall += time.perf_counter() - started
        cpu += time.process_time() - cpu_started
        inserted += size
    connection.close()
    return {"rows": inserted, "seconds": wall, "cpu_seconds": cpu}


if __name__ == "__main__":
    main()
