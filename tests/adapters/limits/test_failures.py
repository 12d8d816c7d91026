"""A server that refuses, errs, freezes, is killed and comes back, and others that can't judge."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import limits_redis_rl
import pytest
import redis
from limits import parse
from limits.errors import StorageError

from conftest import Library, Server, wait_for

THREE = parse("3/hour")


def test_an_error_is_that_of_the_client(library: Library, name: str, start: Callable[..., Server]) -> None:
    server = start()
    storage = library.storage(server)
    limiter = library.strategy(name, storage)
    assert limiter.hit(THREE, cost=2)
    server.kill()
    for call in (limiter.hit, limiter.test, limiter.get_window_stats, limiter.clear):
        with pytest.raises(redis.ConnectionError):
            call(THREE)
    assert not storage.check()
    server.start()
    assert storage.check()
    assert limiter.hit(THREE, cost=3)  # on an empty server, without a new storage


def test_an_error_is_wrapped_on_request(library: Library, name: str, start: Callable[..., Server]) -> None:
    server = start()
    storage = library.storage(server, wrap_exceptions=True)
    limiter = library.strategy(name, storage)
    server.kill()
    for call in (limiter.hit, limiter.test, limiter.get_window_stats, limiter.clear):
        with pytest.raises(StorageError):
            call(THREE)
    for call in (storage.get, storage.get_expiry, storage.clear):
        with pytest.raises(StorageError):
            call("a")
    with pytest.raises(StorageError):
        storage.reset()
    assert not storage.check()


def test_state_of_others_is_an_error_and_stays(library: Library, name: str, server: Server) -> None:
    limiter = library.strategy(name, library.storage(server))
    assert limiter.hit(THREE)
    (key,) = server.client.keys()
    kind = server.client.type(key)
    assert server.client.persist(key)
    with pytest.raises(redis.ResponseError, match="INVALIDSTATE"):
        limiter.hit(THREE)
    assert server.client.ttl(key) == -1
    server.client.delete(key)
    server.client.hset(key, "field", "value")
    for call in (limiter.hit, limiter.test, limiter.get_window_stats):
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            call(THREE)
    assert kind != server.client.type(key) == "hash"
    limiter.clear(THREE)
    assert limiter.hit(THREE)


def test_a_frozen_server_costs_a_quarter_of_a_second_and_one_charge(
    library: Library, name: str, start: Callable[..., Server]
) -> None:
    server = start()
    storage = library.storage_at(server.uri(library.prefix + "redis-rl", ""))
    limiter = library.strategy(name, storage)
    wait_for("a connection", storage.check)
    server.freeze()
    thaw = threading.Timer(1, server.thaw)  # when a second try would still be under way, and then be charged
    thaw.start()
    began = time.monotonic()
    with pytest.raises(redis.TimeoutError):
        limiter.hit(THREE, "a")
    assert 0.2 < time.monotonic() - began < 1
    thaw.join()
    patient = library.strategy(name, library.storage(server))
    wait_for("the charge", lambda: patient.get_window_stats(THREE, "a").remaining < 3)
    assert patient.get_window_stats(THREE, "a").remaining == 2


def test_after_a_time_out_no_answer_is_taken_for_anothers(library: Library, start: Callable[..., Server]) -> None:
    server = start()
    uri = server.uri(library.prefix + "redis-rl", "?socket_timeout=1")
    limiter = library.strategy("fixed-window", library.storage_at(uri))
    assert limiter.hit(THREE, "spent", cost=3)
    server.freeze()
    with pytest.raises(redis.TimeoutError):
        limiter.hit(THREE, "spent")
    server.thaw()
    assert [limiter.hit(THREE, "other") for _ in range(4)] == [True, True, True, False]


def test_after_a_cancelled_call_no_answer_is_taken_for_anothers(start: Callable[..., Server]) -> None:
    server = start()

    async def calls() -> list[bool]:
        storage = limits_redis_rl.AsyncRedisRLStorage(server.uri("async+redis-rl"))
        limiter = limits_redis_rl.AsyncFixedWindow(storage)
        assert await limiter.hit(THREE, "spent", cost=3)
        server.freeze()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(limiter.hit(THREE, "spent"), 0.05)
        server.thaw()
        answers = [await limiter.hit(THREE, "other") for _ in range(4)]
        await storage.storage.aclose()
        return answers

    assert asyncio.run(calls()) == [True, True, True, False]


def test_a_server_without_the_module_is_not_healthy(library: Library, start: Callable[..., Server]) -> None:
    server = start(module=False)
    storage = library.storage(server)
    assert server.client.ping()
    assert not storage.check()
    with pytest.raises(redis.ResponseError, match="unknown command"):
        library.strategy("fixed-window", storage).hit(THREE)


def test_full_memory_refuses_new_keys_and_answers_old_ones(library: Library, name: str, server: Server) -> None:
    limiter = library.strategy(name, library.storage(server))
    assert limiter.hit(THREE, "old", cost=3)
    server.client.config_set("maxmemory", 1)
    try:
        assert not limiter.hit(THREE, "old")
        assert limiter.get_window_stats(THREE, "new").remaining == 3
        with pytest.raises(redis.RedisError):
            limiter.hit(THREE, "new")
    finally:
        server.client.config_set("maxmemory", 0)


def test_a_user_without_rights_gets_an_error(library: Library, server: Server) -> None:
    server.client.acl_setuser("nobody", enabled=True, passwords=["+secret"], commands=["+ping"])
    uri = server.uri(library.prefix + "redis-rl").replace("://", "://nobody:secret@")
    with pytest.raises(redis.RedisError):
        library.strategy("fixed-window", library.storage_at(uri)).hit(THREE)


def test_options_are_the_clients(library: Library, server: Server) -> None:
    storage: Any = library.storage_at(server.uri(library.prefix + "redis-rl", ""), socket_timeout=1.5)
    options = storage.storage.connection_pool.connection_kwargs
    assert (options["socket_timeout"], options["socket_connect_timeout"]) == (1.5, 0.25)
