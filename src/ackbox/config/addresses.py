"""Check addresses of servers, and show them without their passwords."""

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
# Only these parameters are shown: a list of parameters to hide could miss one that holds a
# password.
_SHOWN_PARAMETERS = frozenset({"application_name", "db", "dbname", "host", "port", "sslmode"})


def is_address(text: str, schemes: tuple[str, ...]) -> bool:
    match = _ADDRESS.fullmatch(text)
    return (
        match is not None
        and match["scheme"] in schemes
        and text.isprintable()
        and all(int(port) <= _LAST_PORT for port in _PORT.findall(match["hosts"]))
    )


def show_address(text: str) -> str:
    """Return the address with every password replaced. If the address is malformed, return its
    scheme."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        scheme, separator, _ = text.partition("://")
        return f"{scheme}://***" if separator and scheme.isalpha() else "***"
    if "@" in (match["path"] or ""):  # a password that contains `/` parses as host and path
        return f"{match['scheme']}://***"
    login = "" if match["user"] is None else _show_login(match)
    query = "" if match["query"] is None else "?" + _show_query(match["query"])
    return f"{match['scheme']}://{login}{match['hosts']}{match['path'] or ''}{query}"


def _show_login(address: re.Match[str]) -> str:
    """Hide the user of a Redis URL without a password: the user part may be the password."""
    if address["password"]:
        return f"{address['user']}:***@"
    return "***@" if address["scheme"].startswith("redis") else f"{address['user']}@"


def _show_query(query: str) -> str:
    return "&".join(_show_parameter(*pair.partition("=")) for pair in query.split("&"))


def _show_parameter(name: str, equals: str, value: str) -> str:
    if not equals:
        return "***"
    is_shown = name in _SHOWN_PARAMETERS and "@" not in value
    return f"{name}={value if is_shown else '***'}"
