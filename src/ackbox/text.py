"""Make text from outside safe to show: it can control neither a terminal nor a log."""


def printable(text: str) -> str:
    """Escape every character that is not printable, line breaks and changes of writing direction
    included."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else escape(c) for c in text)


def escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def one_line(text: str, limit: int) -> str:
    """Return the text with its white space collapsed, printable, and cut after `limit`
    characters."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= limit else f"{line[:limit]}..."


def find_unstorable(text: str) -> str | None:
    """Name what no database takes in a text: a NUL character, or a lone surrogate."""
    if "\0" in text:
        return "a NUL character"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "a lone surrogate, which is half of a character"
    return None
