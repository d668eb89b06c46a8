"""Suspects: events whose last two runs or more ended with the process (ADR 18). Pure code."""

from ackbox.model import CRASHED, Claim, Suspect


def is_spent(claim: Claim | Suspect, limit: int) -> bool:
    """Return whether the previous run ended with the process, ran alone, and was the last attempt.

    If only a lowered limit puts an event past its attempts, the event is not spent: it gets one
    last run.
    """
    return claim.attempts > limit and claim.unsettled >= CRASHED


def must_run_alone(suspect: Suspect, limit: int) -> bool:
    """Return whether this attempt would dead-letter the event if the process ended."""
    would_be_last = suspect.attempts >= limit and suspect.unsettled >= CRASHED - 1
    return would_be_last and not is_spent(suspect, limit)
