"""Where a storage connects to, and what it does beside judging."""

from collections.abc import Callable
from typing import Any

import limits_redis_rl
import pytest
import redis
from limits import parse
from limits.errors import StorageError
from redis.exceptions import RedisClusterException

from conftest import NAMES, Library, Server, free_port, wait_for

THREE = parse("3/minute")


@pytest.mark.parametrize(
    "uri, url",
    [
        ("redis-rl://127.0.0.1:6379/1", "redis://127.0.0.1:6379/1"),
        ("async+redis-rl://user:a-rl+b@host:1", "redis://user:a-rl+b@host:1"),
        ("rediss-rl://host:6379", "rediss://host:6379"),
        ("redis-rl+unix:///run/redis.sock?db=2", "unix:///run/redis.sock?db=2"),
        ("async+rediss-rl+cluster://host:7000", "rediss://host:7000"),
    ],
)
def test_schemes(uri: str, url: str) -> None:
    assert limits_redis_rl.client_url(uri) == url


def test_password_and_database(library: Library, server: Server) -> None:
    server.client.acl_setuser("limiter", enabled=True, passwords=["+secret"], keys=["LIMITS:*"], categories=["+@all"])
    uri = server.uri(library.prefix + "redis-rl", "/3").replace("://", "://limiter:secret@")
    assert library.strategy("fixed-window", library.storage_at(uri)).hit(THREE)
    assert "db3" in server.client.info("keyspace")


def test_a_socket_in_the_file_system(library: Library, server: Server) -> None:
    storage = library.storage_at(f"{library.prefix}redis-rl+unix://{server.socket}")
    assert storage.check()
    assert library.strategy("fixed-window", storage).hit(THREE)


def test_a_fixed_window_is_a_counter_under_limits_own_name(library: Library, server: Server) -> None:
    limiter = library.strategy("fixed-window", library.storage(server))
    assert limiter.hit(THREE, "a", cost=2)
    assert server.client.get("LIMITS:LIMITER/a/3/1/minute") == "2"


def test_the_interface_of_limits(library: Library, server: Server) -> None:
    storage: Any = library.storage(server, key_prefix="mine")
    assert (storage.incr("a", 60), storage.incr("a", 60, amount=10)) == (1, 11)
    assert storage.get("a") == 11
    assert server.client.get("mine:a") == "11"
    assert storage.acquire_entry("a", 3, 60, amount=2)
    assert storage.get_moving_window("a", 3, 60)[1] == 2
    assert storage.acquire_sliding_window_entry("a", 3, 60, amount=2)
    assert storage.get_sliding_window("a", 60)[2] == 2
    storage.clear_sliding_window("a", 60)
    assert storage.get_sliding_window("a", 60)[2] == 0
    assert storage.get("a") == 11


def test_reset_deletes_what_has_its_prefix(library: Library, server: Server) -> None:
    storage = library.storage(server, key_prefix="a[*]")
    for number in range(20):
        storage.incr(str(number), 60)
    server.client.set("ab:1", 1)
    server.client.set("a[*]b:1", 1)
    assert storage.reset() == 20
    assert sorted(server.client.keys()) == ["a[*]b:1", "ab:1"]


def test_a_cluster(library: Library, start: Callable[..., Server]) -> None:
    nodes = cluster(start)
    storage = library.storage(nodes[0], "redis-rl+cluster")
    callers = ["x" * number for number in range(1, 13)]
    for name in NAMES:
        limiter = library.strategy(name, storage)
        for caller in callers:
            assert [limiter.hit(THREE, caller) for _ in range(4)] == [True, True, True, False]
            assert limiter.get_window_stats(THREE, caller).remaining == 0
    assert all(node.client.keys() for node in nodes)
    # redis-py asks the server where keys are; its asyncio client sends the first call anywhere, before it has.
    moved = [node.client.info("errorstats").get("errorstat_MOVED", {"count": 0})["count"] for node in nodes]
    assert sum(moved) <= (library.kind == "async")
    storage.clear(THREE.key_for("x"))
    for name in NAMES:
        assert library.strategy(name, storage).hit(THREE, "x")
    assert storage.check()
    assert storage.reset() == len(callers) * len(NAMES)
    for node in nodes:
        node.kill()
    assert not storage.check()
    with pytest.raises((redis.RedisError, RedisClusterException)):
        limiter.hit(THREE, "x")
    late = library.storage(nodes[0], "redis-rl+cluster", wrap_exceptions=True)
    with pytest.raises(StorageError):
        library.strategy(name, late).hit(THREE, "x")


def cluster_info(node: Server) -> Any:
    return node.client.execute_command("CLUSTER", "INFO")


def cluster(start: Callable[..., Server]) -> list[Server]:
    nodes = [start("--cluster-enabled", "yes", "--cluster-port", str(free_port())) for _ in range(2)]
    for number, node in enumerate(nodes):
        node.client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        node.client.execute_command("CLUSTER", "ADDSLOTSRANGE", *[(0, 8191), (8192, 16383)][number])
    first, second = nodes
    first.client.execute_command("CLUSTER", "MEET", "127.0.0.1", second.port, second.command[-1])
    wait_for("a cluster", lambda: all("cluster_state:ok" in str(cluster_info(node)) for node in nodes))
    return nodes
