"""The whole ASGI app: the fast path in front, the guard and the request id around all the rest."""

import random

from ackbox.http.answers import problem, send_answer
from ackbox.http.api import build_api
from ackbox.http.fast_path import FastPath
from ackbox.http.guard import OPEN_PATHS, check_operator
from ackbox.http.problems import HttpError
from ackbox.http.requests import (
    Asgi,
    Message,
    Receive,
    Scope,
    Send,
    check_length,
    check_url,
    limited,
    local_path,
    request_id,
)
from ackbox.runtime import Runtime
from ackbox.telemetry import Answered

_ROUTES = frozenset({"/health", "/ready", "/metrics", "/webhooks", "/api/backup", "/openapi.json"})


def build_asgi(runtime: Runtime) -> Asgi:
    return FastPath(runtime, Guarded(runtime, build_api(runtime)))


class Guarded:
    """Lets in who may come in, and puts the request id on every answer."""

    def __init__(self, runtime: Runtime, api: Asgi) -> None:
        self._token = runtime.settings.api_token
        self._max_body = runtime.settings.max_body_bytes
        self._observe = runtime.observe
        self._api = api

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._api(scope, receive, send)
            return
        path = local_path(scope)
        headers = dict(scope["headers"])
        made_id = request_id(headers.get(b"x-request-id"), random.getrandbits)
        try:
            if path not in OPEN_PATHS:
                check_operator(scope, self._token)
            check_url(scope)
            check_length(headers, self._max_body)
        except HttpError as error:
            answer = problem(error, made_id)
            self._count(path, await send_answer(scope, send, answer, made_id))
            return

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    (b"x-request-id", made_id.encode()),
                    (b"x-content-type-options", b"nosniff"),
                ]
                self._count(path, message["status"])
            await send(message)

        await self._api(scope, limited(receive, self._max_body), send_with_id)

    def _count(self, path: str, status: int) -> None:
        self._observe(Answered(path if path in _ROUTES else "other", status))
