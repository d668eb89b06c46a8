"""Every HTTP route: its method and path, who may call it, and its name in the metrics.

The fast path, the guard, the API, the OpenAPI document and the metrics read this table, and so do
the commands that call a server. No other module contains a path.
"""

import re
from collections.abc import Mapping
from enum import Enum

OTHER = "other"
"""The name in the metrics of paths that contain an id, and of paths that do not exist."""


class Access(Enum):
    """The callers of a route. `guard.py` checks them; the OpenAPI document names their tokens."""

    OPEN = "anyone; an operator gets more details"
    SENDER = "a sender: INGEST_TOKEN, if it is set"
    SOURCE = "a sender, verified by the scheme of the source"
    LOOKUP = "a sender or an operator"
    SCRAPER = "a reader; anyone if METRICS_ACCESS=open"
    READER = "an operator, or READ_TOKEN"
    OPERATOR = "an operator"


class Route(Enum):
    HEALTH = "GET", "/health", Access.OPEN
    READY = "GET", "/ready", Access.OPEN
    METRICS = "GET", "/metrics", Access.SCRAPER
    OPENAPI = "GET", "/openapi.json", Access.OPERATOR
    POST_EVENT = "POST", "/webhooks", Access.SENDER
    POST_BATCH = "POST", "/webhooks/batch", Access.SENDER
    DELIVER = "POST", "/in/{source}", Access.SOURCE, "/in"
    HANDSHAKE = "GET", "/in/{source}", Access.SOURCE, "/in"
    EVENT_BY_KEY = "GET", "/webhooks", Access.LOOKUP
    EVENT_BY_ID = "GET", "/webhooks/{event_id}", Access.LOOKUP, OTHER
    LIST_EVENTS = "GET", "/api/events", Access.READER
    SHOW_EVENT = "GET", "/api/events/{event_id}", Access.READER, OTHER
    SHOW_PAYLOAD = "GET", "/api/events/{event_id}/payload", Access.READER, OTHER
    REPLAY_EVENTS = "POST", "/api/events/replay", Access.OPERATOR
    REPLAY_EVENT = "POST", "/api/events/{event_id}/replay", Access.OPERATOR, OTHER
    DISCARD_EVENTS = "POST", "/api/events/discard", Access.OPERATOR
    DISCARD_EVENT = "POST", "/api/events/{event_id}/discard", Access.OPERATOR, OTHER
    LIST_QUARANTINE = "GET", "/api/quarantine", Access.READER
    SHOW_QUARANTINED = "GET", "/api/quarantine/{quarantine_id}", Access.READER, OTHER
    SHOW_QUARANTINED_BODY = "GET", "/api/quarantine/{quarantine_id}/body", Access.READER, OTHER
    RELEASE_QUARANTINE = "POST", "/api/quarantine/release", Access.OPERATOR
    RELEASE_QUARANTINED = "POST", "/api/quarantine/{quarantine_id}/release", Access.OPERATOR, OTHER
    DROP_QUARANTINE = "POST", "/api/quarantine/drop", Access.OPERATOR
    DROP_QUARANTINED = "POST", "/api/quarantine/{quarantine_id}/drop", Access.OPERATOR, OTHER
    STATS = "GET", "/api/stats", Access.READER
    AUDIT = "GET", "/api/audit", Access.READER
    BACKUP = "POST", "/api/backup", Access.OPERATOR

    def __init__(self, method: str, path: str, access: Access, metric: str | None = None) -> None:
        self.method = method
        self.path = path
        self.access = access
        self.metric = metric or path

    def url(self, server: str, **parameters: str) -> str:
        """Return the URL of the route on a server."""
        return server + self.path.format(**parameters)


_AREAS = {"/webhooks": Access.LOOKUP, "/in": Access.SOURCE, "/api": Access.READER}
"""The callers that get 404, not 401, for an unknown path below these prefixes. For other unknown
paths, only an operator gets 404."""


def find_routes(path: str) -> Mapping[str, Route]:
    """Return the routes of a path by method. `/api/events/replay` is never the id of an event."""
    if (routes := _LITERAL.get(path)) is not None:
        return routes
    return next((routes for pattern, routes in _PATTERNS if pattern.fullmatch(path)), _NO_ROUTES)


def choose_access(routes: Mapping[str, Route], method: str, path: str) -> Access:
    """Return who may call the path. A method that the path lacks is checked like the methods it
    has."""
    for route in (routes.get(method), *routes.values()):
        if route is not None:
            return route.access
    return _AREAS.get("/".join(path.split("/")[:2]), Access.OPERATOR)


def _group_by_path() -> dict[str, dict[str, Route]]:
    paths: dict[str, dict[str, Route]] = {}
    for route in Route:
        paths.setdefault(route.path, {})[route.method] = route
    return paths


_NO_ROUTES: dict[str, Route] = {}
_LITERAL = {path: routes for path, routes in _group_by_path().items() if "{" not in path}
_PATTERNS = [
    (re.compile(re.sub(r"{\w+}", "[^/]+", path)), routes)
    for path, routes in _group_by_path().items()
    if "{" in path
]
