"""The routes that monitoring calls: health, readiness and metrics. They run without FastAPI, which
takes longer to import than the rest of a server."""

from collections.abc import Callable

import msgspec

from ackbox.http.guard import is_operator
from ackbox.http.problems import HttpError
from ackbox.http.refusals import REASON
from ackbox.http.requests import Asgi, Receive, Scope, Send, local_path
from ackbox.http.responses import JSON, RawResponse, problem
from ackbox.http.routes import Route
from ackbox.model import to_text
from ackbox.runtime import Runtime

PROBES = (Route.HEALTH, Route.READY, Route.METRICS)


class ServiceHealth(msgspec.Struct, frozen=True, omit_defaults=True):
    """A background loop of the process, and how often in a row it has failed."""

    name: str
    state: str
    failures: int
    since: str
    error: str | None = None


class HealthResponse(msgspec.Struct, frozen=True, omit_defaults=True):
    """The health of the process. `refusals` are those of the last minute, by source."""

    status: str
    durability: str
    services: list[ServiceHealth] | None = None
    refusals: dict[str, int] | None = None


class ReadyResponse(msgspec.Struct, frozen=True):
    ready: bool


class Probes:
    """Serves the probes and passes every other request to `rest`."""

    def __init__(self, runtime: Runtime, rest: Asgi) -> None:
        self._runtime = runtime
        self._rest = rest
        self._probes: dict[str, Callable[[Scope], RawResponse]] = {
            Route.HEALTH.path: self.health,
            Route.READY.path: self.ready,
            Route.METRICS.path: self.metrics,
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        probe = self._probes.get(local_path(scope))
        if probe is None:
            await self._rest(scope, receive, send)
            return
        try:
            status, body, headers = probe(scope)
        except HttpError as error:
            scope[REASON] = str(error)
            status, body, headers = problem(error)
        headers = (*headers, (b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def health(self, scope: Scope) -> RawResponse:
        """Report that the process is alive. `critical`: for a minute, events could not be stored or
        a background loop has kept failing. An operator also gets the services, and how many
        requests each source refused in the last minute."""
        current = self._runtime.health()
        if not is_operator(scope, self._runtime):
            return _json(HealthResponse(current.status, current.durability))
        refusals = {**self._runtime.refusals()}
        return _json(HealthResponse(current.status, current.durability, self._services(), refusals))

    def ready(self, scope: Scope) -> RawResponse:
        """Report whether the server accepts events. If not, an operator gets the details, and any
        other caller a general reason."""
        if (unready := self._runtime.why_not_ready()) is not None:
            by_operator = is_operator(scope, self._runtime)
            detail = unready.detail if by_operator else unready.reason
            raise HttpError(503, detail, ((b"retry-after", b"1"),))
        return _json(ReadyResponse(ready=True))

    def metrics(self, _scope: Scope) -> RawResponse:
        """Return the metrics in the Prometheus text format."""
        body, content_type = self._runtime.metrics()
        return RawResponse(200, body, ((b"content-type", content_type.encode()),))

    def _services(self) -> list[ServiceHealth]:
        return [
            ServiceHealth(
                service.name,
                service.state,
                service.failures,
                to_text(service.since),
                service.error,
            )
            for service in self._runtime.services.statuses
        ]


def _json(value: msgspec.Struct) -> RawResponse:
    return RawResponse(200, msgspec.json.encode(value), (JSON,))
