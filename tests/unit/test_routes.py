"""The table of routes: which rows a path has, who may call it, and that each row is served."""

from unittest.mock import Mock

import pytest
from fastapi.routing import APIRoute

from ackbox.config import Settings
from ackbox.http.api import make_fastapi
from ackbox.http.openapi import describe_routes
from ackbox.http.probes import PROBES
from ackbox.http.routes import OTHER, Access, Route, choose_access, find_routes

FAST_PATH = {Route.POST_EVENT, Route.POST_BATCH, Route.DELIVER, Route.HANDSHAKE}


def access(method: str, path: str) -> Access:
    return choose_access(find_routes(path), method, path)


@pytest.mark.parametrize(
    ("path", "routes"),
    [
        ("/health", {Route.HEALTH}),
        ("/webhooks", {Route.POST_EVENT, Route.EVENT_BY_KEY}),
        ("/webhooks/batch", {Route.POST_BATCH}),
        ("/webhooks/an-id", {Route.EVENT_BY_ID}),
        ("/in/github", {Route.DELIVER, Route.HANDSHAKE}),
        ("/in/github/more", set()),
        ("/api/events/replay", {Route.REPLAY_EVENTS}),
        ("/api/events/an-id", {Route.SHOW_EVENT}),
        ("/api/events/an-id/replay", {Route.REPLAY_EVENT}),
        ("/health/", set()),
        ("/api/events/", set()),
        ("/webhooks/a/b", set()),
        ("", set()),
        ("*", set()),
    ],
)
def test_a_literal_path_wins_over_an_id(path: str, routes: set[Route]) -> None:
    assert set(find_routes(path).values()) == routes


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/health", Access.OPEN),
        ("DELETE", "/health", Access.OPEN),
        ("POST", "/webhooks", Access.SENDER),
        ("GET", "/webhooks", Access.LOOKUP),
        ("GET", "/api/events/an-id", Access.READER),
        ("POST", "/api/events/an-id/replay", Access.OPERATOR),
        ("GET", "/webhooks/a/b", Access.LOOKUP),
        ("PUT", "/in/github", Access.SOURCE),
        ("POST", "/in/github/more", Access.SOURCE),
        ("GET", "/api", Access.READER),
        ("GET", "/api/nothing", Access.READER),
        ("GET", "/openapi.json", Access.OPERATOR),
        ("GET", "/nothing", Access.OPERATOR),
        ("GET", "/health/more", Access.OPERATOR),
        ("GET", "", Access.OPERATOR),
    ],
)
def test_a_path_that_no_row_opens_is_for_operators(
    method: str, path: str, expected: Access
) -> None:
    assert access(method, path) is expected


def test_every_row_is_served_and_documented() -> None:
    runtime = Mock(settings=Settings())
    api = make_fastapi(runtime)
    on_fastapi = {
        (method, route.path)
        for route in api.routes
        if isinstance(route, APIRoute)
        for method in route.methods or ()
    }
    raw = {*FAST_PATH, *PROBES}
    assert on_fastapi == {(route.method, route.path) for route in set(Route) - raw}
    paths = describe_routes(api, runtime.settings)["paths"]
    documented = {(method.upper(), path) for path in paths for method in paths[path]}
    assert documented == {(route.method, route.path) for route in set(Route) - {Route.OPENAPI}}


def test_a_path_with_an_id_has_no_series_of_its_own() -> None:
    assert {route.metric for route in Route if "{" in route.path} == {OTHER, "/in"}


def test_the_url_of_a_route_has_its_parameters() -> None:
    assert Route.SHOW_EVENT.url("http://h:1", event_id="x") == "http://h:1/api/events/x"
