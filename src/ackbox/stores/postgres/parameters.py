"""Replace `:name` in SQL by PostgreSQL's `$1`. The SQL is split into tokens, because `::`, strings,
quoted names and comments may contain a colon too."""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache

from msgspec import Struct

from ackbox.errors import InvalidStatement

_TOKEN = re.compile(
    r"""
      (?P<string>  [eE]'(?:[^'\\]|\\.|'')*' | '(?:[^']|'')*'
                   | (?P<tag>\$(?:[^\W\d]\w*)?\$).*?(?P=tag) )
    | (?P<comment> --[^\r\n]* | /\* )
    | (?P<quoted>  [uU]&"(?:[^"]|"")*" | "(?:[^"]|"")*" )
    | (?P<cast>    :: )
    | (?P<name>    :[^\W\d]\w* )
    | (?P<number>  \$\d+ )
    | (?P<word>    [^\W\d][\w$]* )
    | (?P<sign>    . )
    """,
    re.VERBOSE | re.DOTALL,
)
# Matches the wording of driver and server. A value quoted after it may contain a `$1` of its own.
_POSITION = re.compile(r"(?:query argument|parameter) \$(\d+)")
_EDGE = re.compile(r"/\*|\*/")


class Token(Struct, frozen=True):
    kind: str
    text: str


class Compiled(Struct, frozen=True):
    """SQL with `$1`, `$2` and so on, and the parameter names in this order."""

    sql: str
    names: tuple[str, ...]

    def values(self, params: Mapping[str, object]) -> list[object]:
        try:
            return [params[name] for name in self.names]
        except KeyError as error:
            raise InvalidStatement(f"The parameter :{error.args[0]} was not given.") from None

    def by_name(self, message: str) -> str:
        """Return an error message in one line, with the parameter's name in place of `$n`."""

        def name(position: re.Match[str]) -> str:
            number = int(position[1])
            return f":{self.names[number - 1]}" if number <= len(self.names) else position[0]

        return _POSITION.sub(name, " ".join(message.split()), count=1)


@lru_cache(maxsize=512)
def compile_named(sql: str) -> Compiled:
    names: dict[str, int] = {}
    parts: list[str] = []
    for token in tokens(sql):
        if token.kind == "name":
            number = names.setdefault(token.text[1:], len(names) + 1)
            parts.append(f"${number}")
        else:
            parts.append(token.text)
    return Compiled("".join(parts), tuple(names))


def tokens(sql: str) -> Iterator[Token]:
    start = 0
    while match := _TOKEN.match(sql, start):
        kind = match.lastgroup or "sign"
        end = match.end()
        if match.group() == "/*":
            end = _end_of_comment(sql, end)
        yield Token("string" if kind == "tag" else kind, sql[start:end])
        start = end


def _end_of_comment(sql: str, position: int) -> int:
    """Return where a block comment ends. Block comments may be nested."""
    depth = 1
    while depth:
        edge = _EDGE.search(sql, position)
        if edge is None:
            return len(sql)
        depth += 1 if edge.group() == "/*" else -1
        position = edge.end()
    return position
