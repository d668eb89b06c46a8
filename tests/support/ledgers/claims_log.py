"""A log of all claims: a trigger of the tests records each change of an event's row, in the order
in which transactions got the row's lock."""

from collections import defaultdict
from collections.abc import Sequence

from support.servers.cluster import Cluster

_TRIGGER = """
CREATE TABLE IF NOT EXISTS claims_log (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz DEFAULT clock_timestamp(),
    event bigint, lane text, was text, status text, ran int, run int, holder text,
    had_lease timestamptz, lease timestamptz, was_claimable timestamptz, claimable timestamptz);
CREATE FUNCTION note_claim() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO claims_log (event, lane, was, status, ran, run, holder, had_lease, lease,
                            was_claimable, claimable)
    VALUES (NEW.ledger_id, NEW.lane, OLD.status, NEW.status, OLD.run, NEW.run, NEW.processor_id,
            OLD.lease_until, NEW.lease_until, OLD.claimable_at, NEW.claimable_at);
    RETURN NULL;
END $$;
CREATE TRIGGER claims_noted AFTER UPDATE ON events FOR EACH ROW
WHEN (OLD.run <> NEW.run OR OLD.status <> NEW.status
      OR OLD.claimable_at IS DISTINCT FROM NEW.claimable_at)
EXECUTE FUNCTION note_claim();
"""
_TWO_HOLDERS = """
SELECT * FROM claims_log WHERE run > ran AND was = 'processing' AND had_lease > at
"""
_WITHOUT_A_CLAIM = """
SELECT * FROM claims_log
WHERE status <> was AND status <> 'processing' AND (was <> 'processing' OR run <> ran)
"""
_COMPLETED_TWICE = """
SELECT event, count(*) FROM claims_log WHERE status IN ('completed', 'failed')
GROUP BY event HAVING count(*) > 1
"""
_CLAIMABLE_TOO_LATE = """
SELECT * FROM claims_log
WHERE status = 'processing' AND (claimable IS NULL OR claimable > at + interval '{lease} seconds')
"""
_CLAIMS = """
SELECT event, run, extract(epoch FROM greatest(was_claimable, changed)) AS due,
       extract(epoch FROM at) AS taken
FROM (SELECT *, lag(at) OVER (PARTITION BY event ORDER BY seq) AS changed FROM claims_log) AS noted
WHERE run > ran
"""
_LANES = "SELECT lane, event, status FROM claims_log WHERE lane IS NOT NULL ORDER BY seq"

Outage = tuple[float, float]


def install(cluster: Cluster) -> None:
    """Create the trigger. Call this when the schema exists, before the first event."""
    cluster.server.execute(_TRIGGER, cluster.name)


def check(cluster: Cluster, *, lease: float) -> None:
    """Check the log after all events are settled. No event may have been replayed."""
    assert cluster.query(_TWO_HOLDERS) == [], "a claim was taken while another was valid"
    assert cluster.query(_WITHOUT_A_CLAIM) == [], "settled without a claim"
    assert cluster.query(_COMPLETED_TWICE) == [], "an event ended twice"
    assert cluster.query(_CLAIMABLE_TOO_LATE.format(lease=lease)) == []


def check_lanes(cluster: Cluster) -> int:
    """Check that at most one event of a lane runs, and that each ends before a younger one begins.
    Return the number of changes that were checked."""
    running: dict[str, set[int]] = defaultdict(set)
    ended: dict[str, int] = defaultdict(int)
    rows = cluster.query(_LANES)
    for lane, event, status in rows:
        running[lane].discard(event)
        if status == "processing":
            assert not running[lane], f"{lane}: {event} began while {running[lane]} ran"
            assert event > ended[lane], f"{lane}: {event} began after {ended[lane]} had ended"
            running[lane].add(event)
        elif status != "pending":
            ended[lane] = event
    return len(rows)


def lateness(cluster: Cluster, outages: Sequence[Outage]) -> list[float]:
    """Return for each claim how long the event had been claimable, not counting the outages."""
    return [
        taken - due - sum(_overlap(outage, (due, taken)) for outage in outages)
        for _, _, due, taken in cluster.query(_CLAIMS)
    ]


def _overlap(first: Outage, second: Outage) -> float:
    return max(min(first[1], second[1]) - max(first[0], second[0]), 0.0)
