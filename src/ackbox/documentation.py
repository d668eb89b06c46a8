"""Documentation pages in messages. A wheel contains no pages, so a message names a page by its
path, and a command that prints the message adds the address below `DOCS_URL`."""

import re

_PAGE = re.compile(r"the documentation page ([a-z/-]+)")


def name_page(path: str) -> str:
    """Return the words by which a message names the page: `how-to/recover`, for example."""
    return f"the documentation page {path}"


def names_page(text: str) -> bool:
    return _PAGE.search(text) is not None


def add_addresses(text: str, docs_url: str | None) -> str:
    """Replace each page that the text names with its address. Without `docs_url`, return the text
    as it is."""
    if docs_url is None:
        return text
    site = docs_url.rstrip("/")
    return _PAGE.sub(lambda match: f"{site}/{match[1]}", text)
