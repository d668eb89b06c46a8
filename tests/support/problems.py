"""A check of the problem document that every refusal must be."""

from typing import Any

from support.wire import Response


def assert_problem(answer: Response, *statuses: int, **headers: str) -> str:
    """A problem document that says what was wrong; returns what it says."""
    assert answer.status in statuses, answer
    problem: dict[str, Any] = answer.json()
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["x-request-id"]
    assert problem["status"] == answer.status
    assert problem["detail"] not in ("", problem["title"])
    assert headers.items() <= answer.headers.items()
    detail: str = problem["detail"]
    return detail
