"""Deliveries with several events: each item is cut out with everything around it (item 9)."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ackbox.errors import SettingError
from ackbox.model import InboundRequest, Refusal, RefusalReason
from ackbox.sources.schemes import Verification
from ackbox.sources.split import SplitDelivery, SplitRule, parse_split, split_delivery

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
ROOT = parse_split("split", "")
VALUE = parse_split("split", "/value")
META = SplitRule(
    ("/entry/*/changes/*/value/messages", "/entry/*/changes/*/value/statuses", "/entry/*/messaging")
)


def request(body: bytes) -> InboundRequest:
    return InboundRequest("POST", "/in/shop", (("content-type", "application/json"),), body, NOON)


def items(body: bytes, rule: SplitRule) -> list[bytes]:
    split = split_delivery(request(body), rule)
    assert isinstance(split, SplitDelivery)
    assert split.rejected == ()
    return [item.request.body for item in split.items]


def test_an_item_is_the_delivery_without_the_other_items() -> None:
    body = b'{ "tenant": 1, "value": [ {"id": 1.0} ,\n{"id":"\\u00e9"}], "x":[7] }\r\n'
    assert items(body, VALUE) == [
        b'{ "tenant": 1, "value": [{"id": 1.0}], "x":[7] }\r\n',
        b'{ "tenant": 1, "value": [{"id":"\\u00e9"}], "x":[7] }\r\n',
    ]


def test_the_bytes_of_an_item_stay_exact_in_an_array() -> None:
    body = b'[{"a":1.50, "a":2},\r\n{"b":"\xc3\xa9 \\/"}]\r\n'
    assert items(body, ROOT) == [b'[{"a":1.50, "a":2}]\r\n', b'[{"b":"\xc3\xa9 \\/"}]\r\n']


def test_items_of_several_arrays_are_found_at_every_depth() -> None:
    body = (
        b'{"object":"o","entry":[{"id":"1","changes":[{"field":"messages","value":{"contacts":[9],'
        b'"messages":[{"id":"a"},{"id":"b"}],"statuses":[{"id":"c"}]}},{"field":"account"}]},'
        b'{"id":"2","messaging":[{"mid":"d"}],"changes":[]}]}'
    )
    value = '{{"contacts":[9],"messages":[{}],"statuses":[{}]}}'
    message = (
        '{{"object":"o","entry":[{{"id":"1","changes":[{{"field":"messages","value":{}}}]}}]}}'
    )
    assert [item.decode() for item in items(body, META)] == [
        message.format(value.format('{"id":"a"}', "")),
        message.format(value.format('{"id":"b"}', "")),
        message.format(value.format("", '{"id":"c"}')),
        '{"object":"o","entry":[{"id":"1","changes":[{"field":"account"}]}]}',
        '{"object":"o","entry":[{"id":"2","messaging":[{"mid":"d"}],"changes":[]}]}',
    ]


@pytest.mark.parametrize(
    "body",
    [
        b'{"value":[{"id":1}]}',
        b'{"value":[]}',
        b'{"value":{"id":1}}',
        b'{"other":1}',
        b"[1,2]",
        b'{"value":[{},{}',
        b"",
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_a_delivery_with_fewer_than_two_items_is_one_event(body: bytes) -> None:
    assert split_delivery(request(body), VALUE) is None


@pytest.mark.parametrize("bad", [b"7", b'"text"', b"null", b"[{}]", b'{"id":"\xff"}'])
def test_a_bad_item_does_not_fail_the_rest(bad: bytes) -> None:
    split = split_delivery(request(b'[{"id":1},' + bad + b',{"id":3}]'), ROOT)
    assert isinstance(split, SplitDelivery)
    assert [item.request.body for item in split.items] == [b'[{"id":1}]', b'[{"id":3}]']
    [rejected] = split.rejected
    assert rejected.body == b"[" + bad + b"]"
    assert rejected.reason is RefusalReason.UNREADABLE
    assert rejected.detail == "item 2 of 3 is not a JSON object"


def test_each_item_is_verified_if_the_scheme_signs_items() -> None:
    def verify(item: InboundRequest) -> Verification:
        return Verification.BAD_SIGNATURE if b"forged" in item.body else Verification.VERIFIED

    split = split_delivery(request(b'[{"state":"forged"},{"state":"good"}]'), ROOT, verify)
    assert isinstance(split, SplitDelivery)
    assert [item.request.body for item in split.items] == [b'[{"state":"good"}]']
    assert [item.reason for item in split.rejected] == [RefusalReason.BAD_SIGNATURE]


def test_a_delivery_whose_items_would_take_too_much_memory_is_refused_and_kept() -> None:
    body = b'{"outer":"' + b"x" * 500_000 + b'","value":[' + b",".join([b"{}"] * 500) + b"]}"
    refusal = split_delivery(request(body), VALUE)
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.keep) == (413, True)


def test_a_repeated_name_on_the_way_to_the_items_is_refused_and_kept() -> None:
    # A reader sees only the last of them: the items of the others would be lost without a trace.
    refusal = split_delivery(request(b'{"value":[{"id":1},{"id":2}],"value":[{"id":3}]}'), VALUE)
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.keep) == (RefusalReason.UNREADABLE, True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["entry", "changes", "value", "messages", '"\\']), inner)
    ),
    max_leaves=20,
)


@given(JSON, st.sampled_from([None, 1]), st.booleans())
def test_no_document_raises_and_every_item_is_json(
    document: object, indent: int | None, ascii_only: bool
) -> None:
    body = json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode()
    split = split_delivery(request(body), META)
    assert not isinstance(split, Refusal) or split.status == 400
    for item in split.items if isinstance(split, SplitDelivery) else ():
        assert isinstance(json.loads(item.request.body), dict)


@given(st.binary(max_size=60))
def test_no_bytes_raise(body: bytes) -> None:
    for text, rule in [(b'{"value":[' + body, VALUE), (b"[" + body + b"]", ROOT)]:
        split = split_delivery(request(text), rule)
        assert not isinstance(split, SplitDelivery) or split.items


@given(
    st.lists(st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=4)), min_size=2)
)
def test_the_items_are_those_that_a_json_reader_finds(values: list[object]) -> None:
    body = json.dumps({"a": "[{", "value": values, "b": 1}).encode()
    assert [json.loads(item)["value"] for item in items(body, VALUE)] == [[item] for item in values]


@pytest.mark.parametrize("text", ["value", "/a~2", "a/*"])
def test_a_split_that_is_no_pointer_is_a_setting_error(text: str) -> None:
    with pytest.raises(SettingError, match=r'split must be a JSON Pointer such as "/value"'):
        parse_split("split", text)


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        (b"[" + b",".join([b"{}"] * 10_001) + b"]", ROOT),
        (b'{"entry":[' + b",".join([b'{"messaging":[{},{},{}]}'] * 3_334) + b"]}", META),
        (b'{"entry":[' + b",".join([b'{"changes":[{},{},{}]}'] * 3_334) + b"]}", META),
    ],
    ids=["in one array", "in several arrays", "on the way to the arrays"],
)
def test_a_delivery_with_too_many_items_is_refused_and_kept(body: bytes, rule: SplitRule) -> None:
    refusal = split_delivery(request(body), rule)
    assert isinstance(refusal, Refusal)
    assert (refusal.status, refusal.keep) == (413, True)
    assert refusal.detail == "the delivery has more than 10000 items, which is the limit"


def test_a_delivery_with_as_many_items_as_allowed_is_split() -> None:
    assert len(items(b"[" + b",".join([b"{}"] * 10_000) + b"]", ROOT)) == 10_000
