"""`ackbox doctor` with `QUEUE_URL`: events run without Redis, so nothing here is a failure."""

import json
from collections.abc import Callable, Iterator

import pytest
from redis import Redis

from support.databases.postgres import Install, PostgresServer, find_installs
from support.databases.valkey import ValkeyServer
from support.servers.cli import Cli

PASSWORD = "hunter2-hunter2-hunter2"


@pytest.fixture
def database(postgres_of: Callable[[Install], PostgresServer]) -> Iterator[str]:
    server = postgres_of(find_installs()[-1])
    url = server.create_database()
    yield url
    server.recycle_database(url)


@pytest.fixture
def redis(valkey: ValkeyServer) -> Iterator[Redis]:
    with Redis.from_url(valkey.url(7)) as client:
        client.flushdb()
        yield client
        client.flushdb()


def examine(cli: Cli, database: str, queue_url: str, about: str = "redis") -> tuple[str, str]:
    done = cli("doctor", "--json", DATABASE_URL=database, QUEUE_URL=queue_url)
    (finding,) = [row for row in json.loads(done.out)["findings"] if row["about"] == about]
    assert done.code == (finding["verdict"] == "fail")
    assert (finding["verdict"] == "ok") == (finding["remedy"] is None)
    assert PASSWORD not in done.out
    return finding["verdict"], f"{finding['detail']} {finding['remedy']}"


def test_a_redis_without_a_stream_is_sound(
    cli: Cli, database: str, valkey: ValkeyServer, redis: Redis
) -> None:
    verdict, words = examine(cli, database, valkey.url(7))
    assert verdict == "ok"
    assert "the first event creates its stream" in words
    assert redis.dbsize() == 0


def test_a_redis_with_its_stream_is_sound(
    cli: Cli, database: str, valkey: ValkeyServer, redis: Redis
) -> None:
    redis.xadd("ackbox", {"id": "source"})
    verdict, words = examine(cli, database, valkey.url(7))
    assert (verdict, "1 entry" in words) == ("ok", True)


def test_a_key_that_is_no_stream_is_a_warning(
    cli: Cli, database: str, valkey: ValkeyServer, redis: Redis
) -> None:
    redis.set("ackbox", "x")
    verdict, words = examine(cli, database, valkey.url(7))
    assert verdict == "warn"
    assert "`ackbox` is a string, not a stream" in words
    assert "another Redis database" in words


@pytest.mark.parametrize("entries", [0, 3])
def test_a_redis_that_accepts_no_entries_is_a_warning(
    cli: Cli, database: str, valkey: ValkeyServer, redis: Redis, entries: int
) -> None:
    for _ in range(entries):
        redis.xadd("ackbox", {"id": "source"})
    redis.config_set("maxmemory", 1)
    try:
        verdict, words = examine(cli, database, valkey.url(7))
    finally:
        redis.config_set("maxmemory", 0)
    assert verdict == "warn"
    assert "takes no new entries: command not allowed when used memory > 'maxmemory'." in words
    assert "Events run without Redis" in words
    assert redis.xlen("ackbox") == entries


def test_a_user_who_may_not_write_is_a_warning(
    cli: Cli, database: str, valkey: ValkeyServer, redis: Redis
) -> None:
    redis.acl_setuser(
        "mute", enabled=True, nopass=True, keys=["*"], categories=["+@all"], commands=["-eval"]
    )
    url = valkey.url(7).replace("redis://", "redis://mute:any@")
    verdict, words = examine(cli, database, url)
    assert verdict == "warn"
    assert "'eval'" in words
    assert "Events run without Redis" in words


def test_the_rights_that_the_queue_needs_are_enough(
    cli: Cli, database: str, valkey: ValkeyServer, redis: Redis
) -> None:
    """The how-to page names these rights."""
    rights = ["+xadd", "+xreadgroup", "+xgroup", "+eval", "+ping", "+type", "+xlen", "+select"]
    redis.acl_setuser("plain", enabled=True, nopass=True, keys=["ackbox"], commands=rights)
    verdict, words = examine(cli, database, valkey.url(7).replace("redis://", "redis://plain:any@"))
    assert (verdict, redis.dbsize()) == ("ok", 0), words


# F51
def test_an_unreachable_redis_is_a_warning_that_shows_no_password(cli: Cli, database: str) -> None:
    verdict, words = examine(cli, database, f"redis://:{PASSWORD}@127.0.0.1:1/0")
    assert verdict == "warn"
    assert "Redis cannot be used" in words
    assert "Events run without Redis" in words


# F51
def test_a_refused_login_is_a_warning_that_shows_no_password(
    cli: Cli, database: str, valkey: ValkeyServer
) -> None:
    url = valkey.url().replace("redis://", f"redis://somebody:{PASSWORD}@")
    verdict, words = examine(cli, database, url)
    assert (verdict, "invalid username-password" in words) == ("warn", True)


def test_an_address_that_cannot_be_one_is_a_bad_setting(cli: Cli, database: str) -> None:
    verdict, words = examine(cli, database, "redis://h/0?socket_timeout=x", "settings")
    assert (verdict, "QUEUE_URL cannot be used" in words) == ("fail", True)
