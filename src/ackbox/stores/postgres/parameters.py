"""`:name` in SQL becomes PostgreSQL's `$1`: by tokens, since `::`, strings, quoted names and
comments may hold a colon too."""

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
# As the driver and the server write it; a value that follows may hold a `$1` of its own.
_POSITION = re.compile(r"(?:query argument|parameter) \$(\d+)")
_EDGE = re.compile(r"/\*|\*/")


class Token(Struct, frozen=True):
    kind: str
    text: str


class Compiled(Struct, frozen=True):
    """SQL with `$n`, and the names these stand for, in their order."""

    sql: str
    names: tuple[str, ...]

    def values(self, params: Mapping[str, object]) -> list[object]:
        try:
            return [params[name] for name in self.names]
        except KeyError as error:
            raise InvalidStatement(f"The parameter :{error.args[0]} was not given.") from None

    def by_name(self, said: str) -> str:
        """An error's text in one line, with the name that was written for the position in it."""

        def name(found: re.Match[str]) -> str:
            number = int(found[1])
            return f":{self.names[number - 1]}" if number <= len(self.names) else found[0]

        return _POSITION.sub(name, " ".join(said.split()), count=1)


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
    place = 0
    while found := _TOKEN.match(sql, place):
        kind = found.lastgroup or "sign"
        end = found.end()
        if found.group() == "/*":
            end = _end_of_comment(sql, end)
        yield Token("string" if kind == "tag" else kind, sql[place:end])
        place = end


def _end_of_comment(sql: str, place: int) -> int:
    """Of one that may hold others."""
    depth = 1
    while depth:
        edge = _EDGE.search(sql, place)
        if edge is None:
            return len(sql)
        depth += 1 if edge.group() == "/*" else -1
        place = edge.end()
    return place
