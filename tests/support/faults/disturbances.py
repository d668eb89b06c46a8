"""Faults of a cluster under load: instances die or freeze, the database is lost."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable

from support.ledgers.claims_log import Outage
from support.ledgers.history import History, Senders
from support.servers.cluster import Cluster, Settings


class Disturbances:
    """Faults at random times. `outages` records when the database was unavailable."""

    def __init__(self, cluster: Cluster, lease: float, *, seed: int = 1) -> None:
        self.cluster = cluster
        self.outages: list[Outage] = []
        self.count: Counter[str] = Counter()
        self._lease = lease
        self._chance = random.Random(seed)
        self._rounds: list[Callable[[], None]] = [
            self.kill,
            self.kill,
            self.freeze,
            self.terminate,
            self.restart_database,
            self.crash_database,
        ]

    def each(self) -> list[Callable[[], None]]:
        """Return one fault of each kind."""
        return self._rounds[1:]

    def any(self) -> Callable[[], None]:
        return self._chance.choice(self._rounds)

    def run(self, disturb: Callable[[], None]) -> None:
        self.count[disturb.__name__] += 1
        disturb()
        time.sleep(self._chance.uniform(0.05, 0.5))

    def kill(self) -> None:
        instance = self._chance.choice(self.cluster.instances)
        instance.kill()
        instance.restart()

    def freeze(self) -> None:
        """Freeze an instance until its leases have expired, so that others take over its claims."""
        instance = self._chance.choice(self.cluster.instances)
        instance.pause()
        time.sleep(self._lease * self._chance.uniform(1.1, 1.8))
        instance.resume()

    def terminate(self) -> None:
        self.cluster.terminate_backends()

    def restart_database(self) -> None:
        self._without_database(self.cluster.server.stop)

    def crash_database(self) -> None:
        self._without_database(self.cluster.server.kill)

    def _without_database(self, end: Callable[[], None]) -> None:
        began = time.time()
        end()
        time.sleep(self._chance.uniform(0, 0.5))
        self.cluster.server.start()
        self.outages.append((began, time.time()))


LEASE = 2.0
SETTINGS: Settings = {
    "CLAIM_TIMEOUT": f"{LEASE:g}s",
    "MAX_ATTEMPTS": "60",
    "RETRY_BASE_DELAY": "20ms",
    "RETRY_MAX_DELAY": "200ms",
}


async def disturb(
    cluster: Cluster, rounds: list[Callable[[], None]], disturbances: Disturbances, *, senders: int
) -> History:
    """Run the faults under load. Return when all sent events are acknowledged and settled."""
    history = History()
    sending = Senders(cluster.ports, history, count=senders, pause=0.1, patience=2)
    for fault in rounds:
        await asyncio.to_thread(disturbances.run, fault)
    await asyncio.wait_for(sending.stop(), 30)
    await asyncio.to_thread(cluster.wait_until_idle, within=60)
    return history
