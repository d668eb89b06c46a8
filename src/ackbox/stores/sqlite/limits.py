"""The limits of an open ledger that no setting changes."""

from typing import NamedTuple


class Limits(NamedTuple):
    """Times and sizes that the parts of the store take from here."""

    busy_milliseconds: int = 5000
    """The wait for a lock of another process, such as an operator's shell."""
    check_seconds: float = 2.0
    """The time of the check for damage when the ledger is opened."""
    retry_seconds: float = 1.0
    """The pause between two attempts to reopen a ledger that failed."""
    log_bytes_kept: int = 64 * 1024 * 1024
    """The size to which a log is truncated when it restarts."""
    checkpoint_pages: int = 1000
    """The pages that are written between two checkpoints."""
    alarm_pages: int = 16_384  # 64 MiB of pages of 4 KiB
    """The size of the log from which a checkpoint waits for readers."""
    reader_wait_milliseconds: int = 50
    """The time for which such a checkpoint waits."""
    recovery_rows: int = 10_000
    """The rows that recovery checks in one transaction."""
    backup_pages: int = 256
    """The pages that a step of a backup copies."""


LIMITS = Limits()
