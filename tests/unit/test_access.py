"""The guard: which token opens which kind of route, by method."""

from types import SimpleNamespace
from typing import cast

import pytest
from pydantic import SecretStr

from ackbox.config import Settings
from ackbox.http.guard import check_access
from ackbox.http.problems import HttpError
from ackbox.http.routes import Access
from ackbox.runtime import Phase, Runtime

TOKENS = ("operator", "reader", "sender", "wrong", None)
ALL = {"operator", "reader", "sender", "wrong", None}
ALLOWED = {
    ("GET", Access.OPEN): ALL,
    ("POST", Access.OPEN): ALL,
    ("GET", Access.LOOKUP): {"operator", "sender"},
    ("POST", Access.SENDER): {"operator", "sender"},
    ("GET", Access.SCRAPER): {"operator", "reader"},
    ("POST", Access.SCRAPER): {"operator"},
    ("GET", Access.READER): {"operator", "reader"},
    ("HEAD", Access.READER): {"operator", "reader"},
    ("POST", Access.READER): {"operator"},
    ("GET", Access.OPERATOR): {"operator"},
    ("POST", Access.OPERATOR): {"operator"},
}


def callers(method: str, access: Access, metrics_access: str = "token") -> set[str | None]:
    settings = Settings.model_validate(
        {"ingest_token": "sender", "read_token": "reader", "metrics_access": metrics_access}
    )
    runtime = SimpleNamespace(
        settings=settings, operator_token=SecretStr("operator"), phase=Phase.RUNNING
    )
    return {token for token in TOKENS if is_open(method, access, cast("Runtime", runtime), token)}


def is_open(method: str, access: Access, runtime: Runtime, token: str | None) -> bool:
    headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    try:
        check_access({"method": method, "headers": headers}, access, runtime)
    except HttpError as error:
        return error.status not in {401, 403}
    return True


@pytest.mark.parametrize(("method", "access"), ALLOWED, ids=str)
def test_a_route_opens_to_the_callers_that_its_row_names(method: str, access: Access) -> None:
    assert callers(method, access) == ALLOWED[method, access]


def test_open_metrics_are_open_to_reads_only() -> None:
    assert callers("GET", Access.SCRAPER, "open") == ALL
    assert callers("POST", Access.SCRAPER, "open") == {"operator"}
    assert callers("GET", Access.READER, "open") == {"operator", "reader"}
