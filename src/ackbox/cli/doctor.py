"""`ackbox doctor`."""

import platform
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ackbox.cli.output import print_json, resolve_pages
from ackbox.documentation import name_page
from ackbox.errors import SettingError
from ackbox.text import printable

if TYPE_CHECKING:
    from ackbox.app import Holder
    from ackbox.config import Settings
    from ackbox.model import Finding, UserTables

_COLOURS = {"ok": "green", "warn": "yellow", "fail": "red"}
_FILES_ADVISED = 4096
_HEALTH_SECONDS = 2.0
_MOUNTS = Path("/proc/mounts")


def doctor(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:INBOX",
            help="Your inbox, such as app:inbox: check the migrations of its own tables too.",
        ),
    ] = None,
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Read the whole ledger too; a large one takes minutes."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check the settings, the machine and the ledger, and say what to do.

    The exit code is 1 if a check fails. The command changes nothing, and a server may run. On
    SQLite it cannot detect code inside the server process that writes to the ledger with another
    SQLite library; such code can damage the ledger.
    """
    with _elapsed() as tick:
        findings = [_with_addresses(finding) for finding in _examine(target, deep, tick)]
    if as_json:
        print_json(_as_builtins(findings))
    else:
        for finding in findings:
            print_finding(finding)
    raise typer.Exit(1 if _failed(findings) else 0)


def _examine(target: str | None, deep: bool, tick: Callable[[float], None]) -> "Iterator[Finding]":
    from ackbox.app import Shared, choose_admin, utc_now, warn_of_open_sources
    from ackbox.cli.user_tables import load_tables
    from ackbox.config import cautions
    from ackbox.model import Finding, Verdict

    yield Finding("python", Verdict.OK, f"Python {platform.python_version()}")
    yield _check_open_files()
    try:
        resolved, tables = load_tables(target)
        settings = resolved.settings
        open_sources = warn_of_open_sources(settings, resolved.sources)
        admin = choose_admin(settings)
        ledger = list(admin.examine(utc_now, _read_mounts()))
    except SettingError as error:
        remedy = f"Correct it. For what each setting does, see {name_page('reference/settings')}."
        yield Finding("settings", Verdict.FAIL, str(error), remedy)
        return
    variables = resolved.warn_of_variables()
    lines = (*cautions(settings), *open_sources, *variables)
    for caution in lines:
        yield Finding("settings", Verdict.WARN, *caution.split(": ", 1))
    yield from ledger
    if tables.migrations and not _failed(ledger):
        yield _check_users_migrations(settings, tables, f"ackbox migrate {target}")
    holder = admin.holder()
    if not isinstance(holder, Shared):
        yield check_server(settings, holder)
    if deep and not _failed(ledger):
        yield from admin.examine_deep(tick)


def _check_users_migrations(settings: "Settings", tables: "UserTables", command: str) -> "Finding":
    from ackbox.cli.user_tables import pending_of_user
    from ackbox.errors import StartupError
    from ackbox.model import Finding, Verdict

    try:
        pending = pending_of_user(settings, tables)
    except StartupError as error:
        remedy = "Declare the migration as it was applied, and add a new one for the change."
        return Finding("migrations", Verdict.FAIL, str(error), remedy)
    if not pending:
        applied = f"all {len(tables.migrations)} migrations of your tables are applied"
        return Finding("migrations", Verdict.OK, applied)
    detail = f"These migrations of your tables are pending: {', '.join(pending)}."
    remedy = f"Run `{command}`, or start the server, which applies them."
    return Finding("migrations", Verdict.WARN, detail, remedy)


def _with_addresses(finding: "Finding") -> "Finding":
    from msgspec.structs import replace

    return replace(finding, remedy=finding.remedy and resolve_pages(finding.remedy))


def _check_open_files() -> "Finding":
    from ackbox.model import Finding, Verdict

    _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < _FILES_ADVISED:
        detail = f"This process may open {limit} files, and each connection needs one."
        remedy = f"Raise the hard limit to {_FILES_ADVISED} or more: ulimit -Hn, LimitNOFILE."
        return Finding("open files", Verdict.WARN, detail, remedy)
    shown = "no limit" if limit == resource.RLIM_INFINITY else f"at most {limit}"
    return Finding("open files", Verdict.OK, shown)


def check_server(
    settings: "Settings", holder: "Holder | None", *, timeout: float = _HEALTH_SECONDS
) -> "Finding":
    """Report which process holds the ledger, and whether it responds within `timeout` seconds."""
    from ackbox.model import Finding, Verdict

    if holder is None:
        return Finding("server", Verdict.OK, "no server runs on this ledger")
    who = f"process {holder.pid} holds the ledger"
    if holder.url is None:
        return Finding("server", Verdict.OK, f"{who}: a command, or a server that is starting")
    return _check_health(settings, f"{who} and listens at {holder.url}", holder.url, timeout)


def _check_health(settings: "Settings", who: str, url: str, timeout: float) -> "Finding":
    import httpx2

    from ackbox.app import find_operator_token
    from ackbox.cli.client import open_client, reachable
    from ackbox.http.routes import Route
    from ackbox.model import Finding, Verdict

    remedy = "Read the log of the server."
    try:
        token = find_operator_token(settings)  # with a token, the response has more detail
        with open_client(token, timeout=timeout) as client:
            status = client.get(Route.HEALTH.url(reachable(url))).json()["status"]
            unready = _why_not_ready(client.get(Route.READY.url(reachable(url))))
    except (httpx2.RequestError, ValueError, TypeError, KeyError) as error:
        detail = f"{who}, but /health fails: {str(error) or type(error).__name__}."
        return Finding("server", Verdict.FAIL, detail, remedy)
    if unready is not None:
        return Finding("server", Verdict.FAIL, f"{who}, but accepts no events: {unready}", remedy)
    if status != "ok":
        return Finding("server", Verdict.FAIL, f"{who}, but reports status {status}.", remedy)
    return Finding("server", Verdict.OK, who)


def _why_not_ready(response: Any) -> str | None:
    return None if response.is_success else str(response.json()["detail"])


def _read_mounts() -> str:
    return _MOUNTS.read_text(errors="replace") if _MOUNTS.exists() else ""


def _failed(findings: "list[Finding]") -> bool:
    return any(finding.verdict == "fail" for finding in findings)


def _as_builtins(findings: "list[Finding]") -> dict[str, Any]:
    from msgspec.structs import asdict

    return {"ok": not _failed(findings), "findings": [asdict(finding) for finding in findings]}


def print_finding(finding: "Finding") -> None:
    verdict = typer.style(f"{finding.verdict:<4}", fg=_COLOURS[finding.verdict])
    typer.echo(f"{verdict}  {finding.about:<12}  {printable(finding.detail)}")
    if finding.remedy:
        typer.echo(f"{'':<20}-> {printable(finding.remedy)}")


@contextmanager
def _elapsed() -> Iterator[Callable[[float], None]]:
    """Show on a terminal how long a deep check has been reading."""
    if not sys.stderr.isatty():
        yield lambda seconds: None
        return
    from rich.console import Console

    with Console(stderr=True).status("checking") as status:
        yield lambda seconds: status.update(f"reading the whole ledger, {seconds:.0f} s")
