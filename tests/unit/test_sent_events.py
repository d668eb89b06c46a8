"""Events that the application's own code sends: their arguments, and the mover."""

from collections.abc import Callable
from typing import Any

import pytest

from ackbox.errors import InvalidEvent, Unavailable
from ackbox.handlers import Tx
from ackbox.maintenance import Mover
from ackbox.model import EventId, Moved, make_sent_event
from ackbox.model.sent_events import SENT_LIMIT

GIVEN: dict[str, Any] = {"event_type": "step", "key": "k", "source": "app", "lane": None}


def make(payload: Any = None, **changed: Any) -> Any:
    return make_sent_event(payload=payload, **{**GIVEN, **changed})


@pytest.mark.parametrize(
    ("payload", "stored", "content_type"),
    [
        (None, b"null", "application/json"),
        ({"a": [1, "é"]}, '{"a":[1,"é"]}'.encode(), "application/json"),
        ("text", b'"text"', "application/json"),
        (b"\xff raw", b"\xff raw", "application/octet-stream"),
        (bytearray(b"raw"), b"raw", "application/octet-stream"),
    ],
)
def test_bytes_are_kept_and_other_payloads_become_json(
    payload: Any, stored: bytes, content_type: str
) -> None:
    sent = make(payload)
    assert (sent.payload, sent.content_type) == (stored, content_type)


@pytest.mark.parametrize("name", ["event_type", "key", "source", "lane"])
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("", "1 to 255 characters, not 0"),
        ("x" * 256, "1 to 255 characters, not 256"),
        ("a\nb", r"control character U\+000A"),
        ("\ud800", "lone surrogate"),
        (7, "a text, not int"),
        (b"k", "a text, not bytes"),
    ],
)
def test_a_bad_name_is_refused_by_its_argument(name: str, value: Any, reason: str) -> None:
    with pytest.raises(InvalidEvent, match=f"^{name} .*{reason}"):
        make(**{name: value})


@pytest.mark.parametrize("payload", [object(), "\ud800", {("a", "b"): 1}, bytes(SENT_LIMIT + 1)])
def test_a_payload_that_cannot_be_stored_is_refused(payload: Any) -> None:
    with pytest.raises(InvalidEvent, match=r"^payload "):
        make(payload)


def test_a_payload_that_contains_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidEvent, match=r"^payload cannot be written as JSON"):
        make(endless)


def test_tx_numbers_the_events_that_have_no_key() -> None:
    tx = Tx(EventId("e-1"))
    tx.send("a")
    tx.send("b", key="own")
    tx.send("c", {"n": 1}, lane="lane", source="billing")
    assert [(s.idempotency_key, s.source, s.lane) for s in tx.sent] == [
        ("e-1:1", "app", None),
        ("own", "app", None),
        ("e-1:3", "billing", "lane"),
    ]


class ScriptedSubmissions:
    """Submissions that are moved batch by batch; an exception is raised instead of a batch."""

    def __init__(self, *steps: Moved | Exception) -> None:
        self.steps = list(steps)
        self.waited: list[float] = []

    async def wait(self, timeout: Any) -> None:
        self.waited.append(timeout.total_seconds())

    async def move(self) -> Moved:
        step = self.steps.pop(0) if self.steps else Moved()
        if isinstance(step, Exception):
            raise step
        return step


class Noted:
    def __init__(self) -> None:
        self.moved: list[Moved] = []
        self.slept: list[float] = []

    def note_moved(self, moved: Moved) -> None:
        self.moved.append(moved)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.fixture
def mover() -> Callable[..., tuple[Mover, ScriptedSubmissions, Noted]]:
    def make_mover(*steps: Moved | Exception) -> tuple[Mover, ScriptedSubmissions, Noted]:
        submissions, noted = ScriptedSubmissions(*steps), Noted()
        return Mover(submissions, noted, sleep=noted.sleep), submissions, noted

    return make_mover


async def test_the_mover_waits_at_most_a_second_and_then_moves_all(mover: Any) -> None:
    batches = [Moved([make()], []), Moved([make()], [])]
    moving, submissions, noted = mover(*batches)
    await moving.wait_and_move()
    assert submissions.waited == [1.0]
    assert noted.moved == batches
    assert noted.slept == []


async def test_during_an_outage_the_mover_tries_once_a_second(mover: Any) -> None:
    moving, _, noted = mover(Unavailable("away"), Moved([make()], []))
    await moving.wait_and_move()
    assert noted.slept == [1.0]
    await moving.wait_and_move()
    assert len(noted.moved) == 1
