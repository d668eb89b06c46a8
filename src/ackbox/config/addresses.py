"""Addresses of servers, which may carry a password: checked, and shown without it."""

import re

_HOST = r"(?:\[[0-9A-Fa-f:.]+\]|[^\s:/?#@,\[\]]*)(?::[0-9]{1,5})?"
_ADDRESS = re.compile(
    r"(?P<scheme>[a-z]+)://"
    r"(?:(?P<user>[^\s:/?#]*)(?P<password>:[^\s/?#]*)?@)?"
    rf"(?P<hosts>{_HOST}(?:,{_HOST})*)"
    r"(?P<path>/[^\s?#]*)?"
    r"(?:\?(?P<query>[^\s#]*))?"
)
_PORT = re.compile(r":([0-9]+)(?=,|$)")
_LAST_PORT = 65535
# A list of what may be shown fails safe: passwords come under many names.
_SHOWN_PARAMETERS = frozenset({"application_name", "db", "dbname", "host", "port", "sslmode"})


def is_address(text: str, schemes: tuple[str, ...]) -> bool:
    found = _ADDRESS.fullmatch(text)
    return (
        found is not None
        and found["scheme"] in schemes
        and text.isprintable()
        and all(int(port) <= _LAST_PORT for port in _PORT.findall(found["hosts"]))
    )


def show_address(text: str) -> str:
    """The address with every password replaced; of what is no address, the scheme alone."""
    found = _ADDRESS.fullmatch(text)
    if found is None:
        scheme, separator, _ = text.partition("://")
        return f"{scheme}://***" if separator and scheme.isalpha() else "***"
    if "@" in (found["path"] or ""):  # a password with a `/` in it reads as host and path
        return f"{found['scheme']}://***"
    login = "" if found["user"] is None else _show_login(found)
    query = "" if found["query"] is None else "?" + _show_query(found["query"])
    return f"{found['scheme']}://{login}{found['hosts']}{found['path'] or ''}{query}"


def _show_login(found: re.Match[str]) -> str:
    """A Redis server may take what stands for the user as its password."""
    if found["password"]:
        return f"{found['user']}:***@"
    return "***@" if found["scheme"].startswith("redis") else f"{found['user']}@"


def _show_query(query: str) -> str:
    return "&".join(_show_parameter(*pair.partition("=")) for pair in query.split("&"))


def _show_parameter(name: str, equals: str, value: str) -> str:
    if not equals:
        return "***"
    is_shown = name in _SHOWN_PARAMETERS and "@" not in value
    return f"{name}={value if is_shown else '***'}"
