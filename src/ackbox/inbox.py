"""What users import: an `Inbox`, run by `ackbox serve`."""

from ackbox.app import App
from ackbox.config import Settings, load_from_process
from ackbox.http.server import run, serve
from ackbox.runtime import Runtime


class Inbox:
    """A durable inbox. Settings come from the environment and `ackbox.toml` unless given."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings if settings is not None else load_from_process()

    def serve(self) -> int:
        """Serve until a signal; returns the exit code of the process."""
        return run(self._serve())

    async def _serve(self) -> int:
        runtime = Runtime(App(self.settings))
        return await serve(runtime, self.settings.host, self.settings.port)
