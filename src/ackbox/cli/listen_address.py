"""The options that say where a process listens."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from ackbox.config import Given


def _check_host(given: str | None) -> str | None:
    from ackbox.config.value_types import HOST_EXPECTED, is_host

    if given is not None and not is_host(given):
        raise typer.BadParameter(f"{HOST_EXPECTED}.")
    return given


Host = Annotated[
    str | None,
    typer.Option(
        "--host", callback=_check_host, help="The address to listen on, instead of the setting."
    ),
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port", min=0, max=65535, help="The port to listen on, instead of the setting; 0: any."
    ),
]


def read_options(**options: object) -> "dict[str, Given]":
    """Return the options that were given, as settings that win over all others."""
    from ackbox.config import read_overrides

    given = {name: value for name, value in options.items() if value is not None}
    return read_overrides(given, "the command line")
