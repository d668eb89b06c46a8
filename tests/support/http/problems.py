"""A check of the problem document that every refusal must be."""

from typing import Any

from support.http.wire import Response


def assert_problem(response: Response, *statuses: int, **headers: str) -> str:
    """Check that the response is a problem document with one of these statuses; return its
    `detail`."""
    assert response.status in statuses, response
    problem: dict[str, Any] = response.json()
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["x-request-id"]
    assert problem["status"] == response.status
    assert problem["detail"] not in ("", problem["title"])
    assert headers.items() <= response.headers.items()
    detail: str = problem["detail"]
    return detail
