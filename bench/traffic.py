"""What is sent: one webhook of ordinary size, under a key that no other request has.

A key begins with a counter spread over 32 bits. Keys that merely count would all land on one leaf
of the unique index and hide what random keys cost on a large ledger.
"""

import json
from collections.abc import Iterator

EVENT_TYPE = "invoice.paid"
PAYLOAD = json.dumps(
    {
        "id": "in_1PqX7bK2eZvKYlo2C0aBcDeF",
        "object": "invoice",
        "customer": "cus_QhN0x3Zr8LmT5w",
        "subscription": "sub_1PqX7aK2eZvKYlo2mNoPqRsT",
        "amount_due": 4900,
        "amount_paid": 4900,
        "currency": "eur",
        "status": "paid",
        "attempt_count": 1,
        "created": 1735689600,
        "lines": [{"price": "price_1PqX7ZK2", "quantity": 1}],
        "livemode": True,
    },
    separators=(",", ":"),
)
BODY_HEAD = '{"idempotency_key":"'
BODY_TAIL = f'","event_type":"{EVENT_TYPE}","payload":{PAYLOAD}}}'
SPREAD = 2_654_435_761
RUN_ID_LENGTH = 8
STRIPE_SECRET = "whsec_of_the_benchmarks"


def keys(run: str, thread: int = 0) -> Iterator[str]:
    """Endless keys, numbered and of one length; two loads on one ledger need two run ids."""
    count = 0
    while True:
        count += 1
        yield key(run, thread, count)


def key(run: str, thread: int, count: int) -> str:
    return f"{count * SPREAD % 4_294_967_296:08x}-{run}-{thread:02d}-{count:09d}"


def body(idempotency_key: str) -> bytes:
    return f"{BODY_HEAD}{idempotency_key}{BODY_TAIL}".encode()


def stripe_event(event_id: str) -> bytes:
    """Return the same webhook as Stripe sends it: its id and type are in the body."""
    head = f'{{"id":"{event_id}","object":"event","created":1735689600,"type":"{EVENT_TYPE}"'
    return f'{head},"data":{{"object":{PAYLOAD}}}}}'.encode()
