"""Derive the configuration of each component from the settings."""

import random
from datetime import timedelta

from ackbox.config import Settings
from ackbox.ingest import Limits
from ackbox.model import QuarantineBudget, RetentionPolicy, WorkerId
from ackbox.retry import RetryPolicy
from ackbox.worker import Backoff, RunPolicy, WorkerConfig

_HANDLER_TIMEOUT = timedelta(minutes=5)


def ingest_limits(settings: Settings, batches: int) -> Limits:
    return Limits(
        buffer_events=settings.ingest_buffer,
        buffer_bytes=settings.ingest_buffer_bytes,
        queue_events=settings.queue_maxsize,
        timeout=settings.ingest_timeout.total_seconds(),
        in_flight=batches,
    )


def worker_config(settings: Settings, worker_id: WorkerId) -> WorkerConfig:
    return WorkerConfig(
        worker_id,
        settings.worker_count,
        settings.claim_batch_size,
        settings.claim_timeout,
        settings.unhandled == "park",
    )


def run_policy(settings: Settings) -> RunPolicy:
    return RunPolicy(
        _backoff(settings), settings.max_attempts, _HANDLER_TIMEOUT, settings.snooze_max_age
    )


def _backoff(settings: Settings) -> Backoff:
    policy = RetryPolicy(
        settings.retry_base_delay,
        settings.retry_max_delay,
        settings.retry_strategy,
        settings.retry_jitter,
    )
    return lambda attempts: policy.delay(attempts, random.uniform)


def quarantine_budget(settings: Settings, sources: int) -> QuarantineBudget:
    return QuarantineBudget.in_equal_shares(settings.quarantine_bytes, sources)


def retention_policy(settings: Settings) -> RetentionPolicy:
    dead_letter_days = settings.dead_letter_retention_days
    return RetentionPolicy(
        keep=timedelta(days=settings.retention_days),
        keep_keys=timedelta(days=settings.dedupe_days),
        keep_dead_letters=None if dead_letter_days is None else timedelta(days=dead_letter_days),
        keep_quarantined=timedelta(days=settings.quarantine_days),
    )
