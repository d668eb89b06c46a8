"""The guard: which token opens which kind of route, by method."""

from types import SimpleNamespace
from typing import cast

import pytest
from pydantic import SecretStr

from ackbox.app import NO_SOURCES, Sources
from ackbox.config import Settings
from ackbox.health import Phase
from ackbox.http.guard import check_access, choose_verifier
from ackbox.http.problems import HttpError
from ackbox.http.routes import Access
from ackbox.runtime import Runtime

TOKENS = ("operator", "reader", "sender", "wrong", None)
ALL = {"operator", "reader", "sender", "wrong", None}
ALLOWED = {
    ("GET", Access.OPEN): ALL,
    ("POST", Access.OPEN): ALL,
    ("PUT", Access.SOURCE): ALL,
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
        settings=settings,
        sources=NO_SOURCES,
        operator_token=SecretStr("operator"),
        phase=Phase.RUNNING,
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


@pytest.mark.parametrize("sources", [NO_SOURCES, Sources({}, needs_token=True)], ids=["no", "yes"])
def test_a_signed_source_closes_the_side_door(sources: Sources) -> None:
    runtime = SimpleNamespace(
        settings=Settings(), sources=sources, operator_token=SecretStr("operator")
    )
    opened = {
        token for token in TOKENS if is_open("GET", Access.LOOKUP, cast("Runtime", runtime), token)
    }
    assert opened == ({"operator"} if sources.needs_token else ALL)
    verify = choose_verifier(Access.SENDER, Settings(), sources)
    assert (verify is not None) is sources.needs_token
    if verify is not None:
        with pytest.raises(HttpError, match=r"set ACKBOX_INGEST_TOKEN .* \[sources.webhooks\]"):
            verify({b"authorization": b"Bearer anything"})


def test_open_metrics_are_open_to_reads_only() -> None:
    assert callers("GET", Access.SCRAPER, "open") == ALL
    assert callers("POST", Access.SCRAPER, "open") == {"operator"}
    assert callers("GET", Access.READER, "open") == {"operator", "reader"}
