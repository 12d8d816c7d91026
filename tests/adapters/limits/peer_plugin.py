"""A pytest plugin: the tests of limits and of Flask-Limiter run on this storage, as they are.

What they know as `redis://` is this storage. Where RL_STRATEGIES is set, what they know as limits' strategies
are this storage's. Tests that use no Redis are left out, and those that RL_LEFT_OUT names.
"""

import inspect
import os
import sys
from typing import Any
from unittest.mock import MagicMock

import conftest  # noqa: F401 - the path to limits_redis_rl
import limits.aio.strategies
import limits.strategies
import limits_redis_rl
import pytest
from limits.storage.base import TimestampedSlidingWindow

for client_of_another_server in ("pymemcache", "pymemcache.client", "pymongo", "valkey"):
    sys.modules[client_of_another_server] = MagicMock()

OPTIONS = {"socket_timeout": 10, "socket_connect_timeout": 10}  # a machine that tests may be slow


# Their tests know of sliding windows that lie on multiples of their length, as those of the server do.
class Redis(limits_redis_rl.RedisRLStorage, TimestampedSlidingWindow):
    STORAGE_SCHEME = ["redis", "redis+unix"]

    def __init__(self, uri: str, **options: Any) -> None:
        super().__init__(uri.replace("redis", "redis-rl", 1), **OPTIONS | options)


class AsyncRedis(limits_redis_rl.AsyncRedisRLStorage, TimestampedSlidingWindow):
    STORAGE_SCHEME = ["async+redis", "async+redis+unix"]

    def __init__(self, uri: str, implementation: str = "", **options: Any) -> None:
        super().__init__(uri.replace("redis", "redis-rl", 1), **OPTIONS | options)


vars(limits.storage)["RedisStorage"] = Redis
vars(limits.aio.storage)["RedisStorage"] = AsyncRedis

if os.environ.get("RL_STRATEGIES"):
    for module in (limits.strategies, limits.aio.strategies):
        for name in ("fixed-window", "moving-window", "sliding-window-counter"):
            vars(module)[name.title().replace("-", "") + "RateLimiter"] = vars(module)["STRATEGIES"][name]


@pytest.fixture(scope="session")
def docker_services() -> Any:
    """The server runs already."""
    return MagicMock()


def uses_redis(item: pytest.Function) -> bool:
    if "[" in item.name:
        return item.get_closest_marker("redis") is not None or "[redis:" in item.name
    return "redis://" in inspect.getsource(item.function)


def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    left_out = os.environ["RL_LEFT_OUT"].split()
    items[:] = [item for item in items if uses_redis(item) and item.originalname not in left_out]
