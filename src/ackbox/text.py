"""Text from outside, made safe to show: it steers neither a terminal nor a log."""


def printable(text: str) -> str:
    """Write each character that does more than show itself as its escape, also line breaks and
    what turns the direction of writing."""
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
