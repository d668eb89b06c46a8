"""Deliveries with several events: find the items, and cut each one out with all that is around it.

An item's payload is the delivery with the other items removed. Nothing is encoded again: the bytes
of the item, and those around the arrays, stay as the sender wrote them. The item is then the only
one of its arrays, so that the same field, such as `/entry/0/messaging/0/message/mid`, is right for
every item, and for a delivery with one item only.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import msgspec
from msgspec.structs import replace

from ackbox.errors import SettingError
from ackbox.model import InboundRequest, Refusal, RefusalReason, RejectedItem
from ackbox.sources.fields import Delivery
from ackbox.sources.schemes import Verification

_LEAST_BYTES_LIMIT = 4 * 1024 * 1024
_GROWTH_LIMIT = 8
"""The items of a delivery repeat what is around them: together they may take this many times its
size, or the least limit if that is more."""
_ITEMS_LIMIT = 10_000
"""Items are cut out and sealed on the event loop: more of them would block it for seconds."""
_BLANKS = b" \t\r\n"
_BETWEEN = _BLANKS + b","
_NAME = re.compile(rb'[ \t\r\n,]*("[^"\\]*(?:\\.[^"\\]*)*")[ \t\r\n]*:[ \t\r\n]*', re.DOTALL)
_ANY = "*"

Tree = dict[str, "Tree"]
VerifyItem = Callable[[InboundRequest], Verification]


@dataclass(frozen=True)
class SplitRule:
    """The arrays that contain the items: JSON Pointers, in which `*` stands for each element of an
    array. An element on the way that contains no items is an item itself, so that none is lost."""

    arrays: tuple[str, ...]

    @property
    def item_prefixes(self) -> tuple[str, ...]:
        """The beginnings of the JSON Pointers into an item: it is the only one of its arrays."""
        return tuple(path.replace("*", "0") + "/0/" for path in self.arrays)

    @cached_property
    def tree(self) -> Tree:
        """The pointers by their first names, then by their second names, and so on."""
        tree: Tree = {}
        for path in self.arrays:
            branch = tree
            for token in [*path.split("/")[1:], _ANY]:
                branch = branch.setdefault(token.replace("~1", "/").replace("~0", "~"), {})
        return tree


@dataclass(frozen=True, slots=True)
class SplitDelivery:
    """The items of a delivery as deliveries of their own, and the bad items."""

    items: tuple[Delivery, ...]
    rejected: tuple[RejectedItem, ...]


def parse_split(word: str, text: str) -> SplitRule:
    """Return the rule that a source's table names. `word` is its key in the table."""
    if (text and not text.startswith("/")) or re.search(r"~(?![01])", text):
        raise SettingError(
            f'{word} must be a JSON Pointer such as "/value" to the array of the items, or "" if '
            f"the whole body is the array, not {text!r}"
        )
    return SplitRule((text,))


def split_delivery(
    request: InboundRequest, rule: SplitRule, verify_item: VerifyItem | None = None
) -> SplitDelivery | Refusal | None:
    """Return the items, or None if the delivery contains fewer than two and is one event. Refuse a
    delivery that cannot be split. With `verify_item`, an item that fails it is a bad item."""
    body = request.body
    try:
        bodies = _cut_all(body, _read_tree(body, rule.tree))
    except _CannotSplitError as error:
        return Refusal(error.status, RefusalReason.UNREADABLE, str(error), keep=True)
    if len(bodies) < 2:
        return None
    return _judge_items(request, bodies, verify_item)


def _judge_items(
    request: InboundRequest, bodies: list[tuple[bool, bytes]], verify_item: VerifyItem | None
) -> SplitDelivery | Refusal:
    items: list[Delivery] = []
    rejected: list[RejectedItem] = []
    for number, (is_object, item_body) in enumerate(bodies, 1):
        item = Delivery(replace(request, body=item_body))
        reason = _find_fault(item, is_object, verify_item)
        if reason is None:
            items.append(item)
        else:
            detail = f"item {number} of {len(bodies)} {_FAULTS[reason]}"
            rejected.append(RejectedItem(item_body, reason, detail))
    if not items:
        detail = "none of the items of the delivery can become an event"
        return Refusal(400, RefusalReason.UNREADABLE, detail, keep=True)
    return SplitDelivery(tuple(items), tuple(rejected))


_FAULTS = {
    RefusalReason.UNREADABLE: "is not a JSON object",
    RefusalReason.UNSIGNED: "is not signed",
    RefusalReason.MALFORMED: "has a malformed signature",
    RefusalReason.BAD_SIGNATURE: "has a wrong signature",
    RefusalReason.BAD_TIME: "was signed too long ago, or in the future",
}


def _find_fault(
    item: Delivery, is_object: bool, verify_item: VerifyItem | None
) -> RefusalReason | None:
    if not is_object or item.json is None:
        return RefusalReason.UNREADABLE
    verification = verify_item(item.request) if verify_item else Verification.VERIFIED
    if verification is Verification.VERIFIED:
        return None
    return RefusalReason(verification.value)


@dataclass(frozen=True, slots=True)
class _Node:
    """A value in the body that is an item, or contains arrays of items."""

    start: int
    end: int
    arrays: list["_Array"]


@dataclass(frozen=True, slots=True)
class _Array:
    start: int
    end: int
    elements: list[_Node]


class _CannotSplitError(Exception):
    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class _Count:
    """The number of items that were found so far in a delivery."""

    def __init__(self) -> None:
        self._items = 0

    def add(self, elements: int, *, are_items: bool) -> None:
        """Count the elements of an array. Raise if the delivery has too many items: an element that
        is no item itself contains at least one, which is counted later."""
        if self._items + elements > _ITEMS_LIMIT:
            detail = f"the delivery has more than {_ITEMS_LIMIT} items, which is the limit"
            raise _CannotSplitError(413, detail)
        if are_items:
            self._items += elements


def _read_tree(body: bytes, tree: Tree) -> _Node:
    start = len(body) - len(body.lstrip(_BLANKS))
    end = len(body.rstrip(_BLANKS))
    return _Node(0, len(body), _find_arrays(body, start, end, tree, _Count()))


def _find_arrays(body: bytes, start: int, end: int, tree: Tree, count: _Count) -> list[_Array]:
    """Return the arrays of items in a value, in the order of the body. A value that is no JSON, or
    not of the expected kind, contains none."""
    try:
        if _ANY in tree:
            return [_read_array(body, start, end, tree[_ANY], count)]
        members = _find_members(body, start, end) if tree else []
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return []
    return [
        array
        for name, value_start, value_end in members
        if name in tree
        for array in _find_arrays(body, value_start, value_end, tree[name], count)
    ]


def _read_array(body: bytes, start: int, end: int, tree: Tree, count: _Count) -> _Array:
    """Return an array with the nodes of its elements. Raise if the value is no array."""
    elements = msgspec.json.decode(memoryview(body)[start:end], type=list[msgspec.Raw])
    count.add(len(elements), are_items=not tree)
    nodes: list[_Node] = []
    for span in _find_spans(body, start, elements):
        arrays = _find_arrays(body, *span, tree, count)
        if tree and not any(array.elements for array in arrays):
            count.add(1, are_items=True)
        nodes.append(_Node(*span, arrays))
    return _Array(start, end, nodes)


def _find_spans(body: bytes, start: int, elements: list[msgspec.Raw]) -> list[tuple[int, int]]:
    """Return where each element of an array begins and ends."""
    spans: list[tuple[int, int]] = []
    position = start + 1
    for element in elements:
        while body[position] in _BETWEEN:
            position += 1
        spans.append((position, position + len(memoryview(element))))
        position = spans[-1][1]
    return spans


def _find_members(body: bytes, start: int, end: int) -> list[tuple[str, int, int]]:
    """Return the name of each member of an object, and where its value begins and ends. Raise if
    the value is no object."""
    values = msgspec.json.decode(memoryview(body)[start:end], type=dict[str, msgspec.Raw])
    members: list[tuple[str, int, int]] = []
    position = start + 1
    while name := _NAME.match(body, position, end):
        key = msgspec.json.decode(name[1], type=str)
        position = name.end() + len(memoryview(values[key]))
        # Of a repeated name the decoder knows only the last value.
        if len(members) == len(values) or body[name.end() : position] != bytes(values[key]):
            raise _CannotSplitError(400, "an object around the items has two members of one name")
        members.append((key, name.end(), position))
    return members


def _cut_all(body: bytes, root: _Node) -> list[tuple[bool, bytes]]:
    """Return for each item whether it is an object, and the delivery without the other items."""
    limit = max(_LEAST_BYTES_LIMIT, _GROWTH_LIMIT * len(body))
    bodies: list[tuple[bool, bytes]] = []
    for is_object, item in _cut(body, root):
        limit -= len(item)
        if limit < 0:
            raise _CannotSplitError(413, "the items of the delivery would take too much memory")
        bodies.append((is_object, item))
    return bodies


def _cut(body: bytes, node: _Node) -> Iterator[tuple[bool, bytes]]:
    """Yield the bytes of the node once for each item in it, without the other items."""
    if not any(array.elements for array in node.arrays):
        yield body[node.start : node.start + 1] == b"{", body[node.start : node.end]
    for index, array in enumerate(node.arrays):
        before = _empty(body, node.start, node.arrays[:index], array.start)
        after = _empty(body, array.end, node.arrays[index + 1 :], node.end)
        for element in array.elements:
            for is_object, item in _cut(body, element):
                yield is_object, b"".join((before, b"[", item, b"]", after))


def _empty(body: bytes, start: int, arrays: list[_Array], end: int) -> bytes:
    """Return a part of the body in which these arrays are empty."""
    parts: list[bytes] = []
    for array in arrays:
        parts += (body[start : array.start], b"[]")
        start = array.end
    return b"".join((*parts, body[start:end]))
