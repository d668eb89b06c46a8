"""Read the query of a request's URL."""

from urllib.parse import parse_qsl


def read_parameter(url: str, name: str) -> list[str]:
    """Return every value of a parameter, decoded."""
    query = url.partition("?")[2]
    pairs = parse_qsl(query, keep_blank_values=True, errors="replace")
    return [value for key, value in pairs if key == name]
