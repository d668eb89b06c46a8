"""The settings and packages that `QUEUE_URL` needs, and the errors without them."""

import sys
from importlib.abc import MetaPathFinder

import pytest
from pydantic import SecretStr

from ackbox.app import App
from ackbox.config import Settings
from ackbox.errors import SettingError
from ackbox.queues.stream import Stream
from ackbox.telemetry import ignore_facts

POSTGRES = SecretStr("postgresql://db.internal/inbox")
REDIS = SecretStr("redis://:hidden@redis.internal")


class NotInstalled(MetaPathFinder):
    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "redis":
            raise ModuleNotFoundError("No module named 'redis'", name="redis")


def test_a_queue_with_a_sqlite_ledger_is_refused() -> None:
    with pytest.raises(SettingError, match="QUEUE_URL is for the many instances"):
        App(Settings(queue_url=REDIS))


def test_a_missing_client_is_named_before_anything_is_opened(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = ("ackbox.app.redis", "ackbox.queues", "redis")
    for name in [name for name in sys.modules if name.startswith(ours)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [NotInstalled(), *sys.meta_path])
    with pytest.raises(SettingError, match=r"pip install 'ackbox\[redis\]'"):
        App(Settings(database_url=POSTGRES, queue_url=REDIS))


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("redis://h:port/0", "Port could not be cast to integer value as 'port'."),
        ("redis://:hidden@h/0?socket_timeout=x", "Invalid value for 'socket_timeout'"),
        ("redis://:hidden@h/abc", "abc is no number of a database, as in redis://host:6379/0."),
        ("redis://:hidden@h/3/4", "3/4 is no number of a database"),
        ("redis://:hidden@h/0?foo=bar", "the Redis client knows no option 'foo'."),
        ("rediss://:hidden@h/0?ssl_cert_reqs=odd", "Invalid SSL Certificate Requirements"),
    ],
)
def test_a_malformed_address_is_refused_without_its_password(url: str, message: str) -> None:
    with pytest.raises(SettingError) as refused:
        Stream(url, ignore_facts)
    assert str(refused.value).startswith(f"QUEUE_URL cannot be used: {message}")
    assert "hidden" not in str(refused.value)
