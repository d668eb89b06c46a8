"""Refused requests are logged once a second, with a count of the suppressed ones (N15)."""

from typing import Any

from ackbox.exporters.loggers import Logger
from ackbox.exporters.refusals import RefusalLog
from ackbox.http.refusals import note_refusal
from ackbox.telemetry import Fact, RequestRefused


class Lines(list[dict[str, Any]]):
    def warning(self, line: str, **fields: Any) -> None:
        self.append({"line": line, **fields})


# N15
def test_a_flood_is_logged_once_a_second_with_a_count_of_the_others() -> None:
    lines, now = Lines(), 100.0
    log = RefusalLog(_as_logger(lines), lambda: now)
    for number in range(1000):
        log.log(RequestRefused(401, "Send it.", str(number), "192.0.2.1"))
    assert [(line["request_id"], line["suppressed"]) for line in lines] == [("0", 0)]
    now += 1.0
    log.log(RequestRefused(400, "Bad.", "last", None))
    assert (lines[1]["status"], lines[1]["suppressed"]) == (400, 999)
    now += 60.0
    log.log(RequestRefused(400, "Bad.", "later", None))
    assert lines[2]["suppressed"] == 0


# N15
def test_only_refusals_are_reported_as_facts() -> None:
    facts: list[Fact] = []
    for status in (200, 202, 404, 409, 429, 500, 503):
        note_refusal(facts.append, status, "reason", "id", ("192.0.2.1", 1))
    assert facts == []
    for status in (400, 401, 403, 405, 408, 413, 414, 415, 431):
        note_refusal(facts.append, status, "reason", "id", ("192.0.2.1", 1))
    assert len(facts) == 9
    assert facts[0] == RequestRefused(400, "reason", "id", "192.0.2.1")


def _as_logger(lines: Lines) -> Logger:
    logger: Any = lines
    typed: Logger = logger
    return typed
