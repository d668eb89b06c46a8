"""The phase, health and readiness of a process, as values."""

from enum import StrEnum

from msgspec import Struct


class Phase(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    STOPPED = "stopped"


class Health(Struct, frozen=True):
    """The health of the process. `critical` means that for a minute events could not be recorded,
    or that a background loop has kept failing for a minute."""

    status: str
    durability: str


class Unready(Struct, frozen=True):
    """Why events are not accepted. `reason` is for everybody; `detail` is for operators and may
    name paths (S24)."""

    reason: str
    detail: str
