"""Every SQL block says what it does, and both databases use one name for what both have."""

import re
from pathlib import Path

import pytest

STORES = Path(__file__).parents[2] / "src/ackbox/stores"
BLOCK = re.compile(r"^-- name: (\w+)\n(.*)", re.MULTILINE)
SENTENCE = re.compile(r"-- [A-Z][a-z]+[ ,].*\w.*")

ONLY = {
    "sqlite": {
        "one writer claims in several statements": (
            *("claimable", "claimable_among", "claimable_suspect", "claimed", "large_payload"),
        ),
        "one writer records in several statements": (
            *("events_by_key", "tombstones_by_key", "count_repeats", "save_cursor"),
        ),
        "waiting events are counted without live rows": ("count_all_parked", "count_not_due"),
        "all leases end with the process": ("end_leases",),
        "times are those of this machine": (
            *(
                "has_future_rows",
                "scan_pending",
                "reschedule_future_rows",
                "newest_created",
                "newest_tombstone",
            ),
        ),
        "DDL of users is checked": ("referenced_tables",),
        "a promotion reads from here": (
            *("export_events", "export_tombstones", "export_cursors", "export_audit"),
            "export_fingerprints",
            "export_quarantine",
            *("export_counts", "export_sequences", "export_state", "table_names"),
            "export_submissions",
        ),
    },
    "postgres": {
        "one statement claims": ("claim_among", "claim_suspect"),
        "one statement counts repeats, unless a row is locked": ("repeat", "repeat_one"),
        "waiting events are counted in live rows": ("waiting", "refresh_live_events"),
        "numbers commit in any order": ("open_ingests",),
        "lanes are locked by rows of their own": (
            *("lock_lanes", "lanes_of", "lanes_of_parked", "drop_lanes"),
        ),
        "counts are several rows": ("compact_counts",),
        "a server has settings, rights and a clock": (
            *(
                "condition",
                "long_transactions",
                "vacuumed",
                "missing_rights",
                "schema_state",
                "former_name",
            ),
            *("server_settings", "server_time", "has_migrations_table", "applied_migrations"),
        ),
        "users' SQL has a search path": (
            *("narrow_session_path", "narrow_transaction_path", "users_path"),
        ),
        "several processes share a ledger": ("lock",),
        "a promotion writes to here": (
            *("lock_promotion", "promotion", "begin_promotion", "advance_promotion"),
            *("finish_promotion", "other_processes", "has_rows", "analyze", "set_sequences"),
            *("import_events", "import_tombstones", "import_cursors", "import_audit"),
            "import_fingerprints",
            *("import_quarantine", "imported_quarantine"),
            *("imported_events", "imported_tombstones", "imported_cursors"),
            "imported_fingerprints",
            *("imported_audit", "imported_counts"),
            *("import_submissions", "imported_submissions"),
        ),
    },
}
"""The blocks that only one database has, by the reason. A name that is in neither list must be in
both databases."""


def first_lines(database: str) -> dict[str, str]:
    """Return the line below the name of each block."""
    files = sorted((STORES / database / "sql").glob("*.sql"))
    return {name: line for file in files for name, line in BLOCK.findall(file.read_text())}


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_every_sql_block_says_below_its_name_what_it_does(database: str) -> None:
    lines = first_lines(database)
    assert len(lines) > 50
    assert [name for name, line in lines.items() if not SENTENCE.fullmatch(line)] == []


@pytest.mark.parametrize(("database", "other"), [("sqlite", "postgres"), ("postgres", "sqlite")])
def test_a_block_has_one_name_in_both_databases_unless_only_one_has_it(
    database: str, other: str
) -> None:
    only = {name for names in ONLY[database].values() for name in names}
    assert first_lines(database).keys() - first_lines(other).keys() == only
