"""The facts that a store reported, in their order."""

import asyncio
from typing import TypeVar

from ackbox.errors import AckboxError
from ackbox.telemetry import Fact

F = TypeVar("F", bound=Fact)


class Facts(list[Fact]):
    """An observer that collects facts."""

    def __call__(self, fact: Fact) -> None:
        self.append(fact)

    def of(self, *kinds: type[F]) -> list[F]:
        return [fact for fact in self if isinstance(fact, kinds)]


class Fatal(list[AckboxError]):
    """A collection of the fatal errors of a store."""

    def __init__(self) -> None:
        super().__init__()
        self._called = asyncio.Event()

    def __call__(self, error: AckboxError) -> None:
        self.append(error)
        self._called.set()

    async def wait(self) -> AckboxError:
        """Return the first fatal error."""
        await asyncio.wait_for(self._called.wait(), 5)
        return self[0]
