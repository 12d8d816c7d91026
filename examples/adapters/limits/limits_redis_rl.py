"""`limits` on redis-rl, and so Flask-Limiter and slowapi: the server decides, in one command.

    import limits_redis_rl  # registers the storages and the strategies
    from limits.storage import storage_from_string
    from limits.strategies import STRATEGIES

    storage = storage_from_string("redis-rl://127.0.0.1:6379")
    limiter = STRATEGIES["token-bucket"](storage)
    limiter.hit(limits.parse("100/minute"), "tenant:42")

Schemes: `redis-rl`, `rediss-rl` (TLS), `redis-rl+unix`, `redis-rl+cluster`, `rediss-rl+cluster`, each with
`async+` in front for `limits.aio`. Tested with limits 5.8 and redis-py 8.1.
"""

from __future__ import annotations

import re
import time
from functools import cached_property
from typing import Any, NamedTuple

import limits.aio.storage
import limits.aio.strategies
import limits.storage
import limits.strategies
import redis.asyncio
from limits import RateLimitItem, WindowStats
from limits.errors import ConfigurationError, StorageError
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import RedisClusterException
from redis.retry import Retry

PREFIX = "LIMITS"  # that of limits' own Redis storage, whose fixed windows go on here as they are
NO_LIMIT = 9_000_000_000_000_000
MOST_IN_LOG = 10_000
ERRORS = (redis.RedisError, RedisClusterException)  # the second is none of the first
URL_SCHEMES = {
    "redis-rl": "redis",
    "rediss-rl": "rediss",
    "redis-rl+unix": "unix",
    "redis-rl+cluster": "redis",
    "rediss-rl+cluster": "rediss",
}

Command = tuple[str | int, ...]


def client_url(uri: str) -> str:
    scheme, rest = uri.removeprefix("async+").split("://", 1)
    return f"{URL_SCHEMES[scheme]}://{rest}"


def client_options(retry: Retry | AsyncRetry, options: dict[str, Any]) -> dict[str, Any]:
    # A limiter that hangs is worse than none. A call that timed out may have been charged: sent again, it
    # would be charged twice.
    return {"socket_connect_timeout": 0.25, "socket_timeout": 0.25, "retry": retry, **options}


class Policy(NamedTuple):
    """What the server is asked. Each algorithm has keys of its own, as none can read another's."""

    words: Command  # as RL.PEEK takes them
    suffix: str

    def take(self, key: str, cost: int) -> Command:
        return f"RL.{self.words[0]}", key + self.suffix, *self.words[1:], "COST", cost

    def peek(self, key: str, cost: int = 1) -> Command:
        return "RL.PEEK", key + self.suffix, *self.words, "COST", cost


def fixed_window(limit: int, seconds: int) -> Policy:
    return Policy(("FIXED", limit, seconds * 1000), "")


def sliding_window(limit: int, seconds: int) -> Policy:
    return Policy(("SLIDE", limit, seconds * 1000), ":slide")


def moving_window(limit: int, seconds: int) -> Policy:
    if limit > MOST_IN_LOG:
        raise ConfigurationError(
            f"moving-window takes limits up to {MOST_IN_LOG}, as it remembers each unit: "
            "take sliding-window-counter or token-bucket"
        )
    return Policy(("SLIDE", limit, seconds * 1000, "EXACT"), ":exact")


def token_bucket(limit: int, seconds: int) -> Policy:
    return Policy(("TOKEN", limit, limit, seconds * 1000), ":token")


SUFFIXES = [of(1, 1).suffix for of in (fixed_window, sliding_window, moving_window, token_bucket)]


class Reply(NamedTuple):
    allowed: int
    limit: int
    remaining: int
    retry_after_ms: int
    reset_after_ms: int

    @property
    def used(self) -> int:
        return self.limit - self.remaining

    @property
    def reset_time(self) -> float:
        """When the next unit comes back if there is none, else when all are back."""
        return time.time() + (self.reset_after_ms if self.remaining else max(self.retry_after_ms, 0)) / 1000


NOBODY = Reply(0, 0, 0, -1, 0)  # for 0 per minute: the server takes limits from 1


class RedisRLStorage(
    limits.storage.Storage, limits.storage.MovingWindowSupport, limits.storage.SlidingWindowCounterSupport
):
    STORAGE_SCHEME = ["redis-rl", "rediss-rl", "redis-rl+unix"]

    def __init__(self, uri: str, wrap_exceptions: bool = False, key_prefix: str = PREFIX, **options: Any) -> None:
        """`options` are those of the client, over the time-outs and the retry of `client_options`."""
        super().__init__(uri, wrap_exceptions)
        self.url, self.key_prefix = client_url(uri), key_prefix
        self.options = client_options(Retry(NoBackoff(), 0), options)

    @cached_property
    def storage(self) -> Any:
        return redis.Redis.from_url(self.url, **self.options)

    @property
    def base_exceptions(self) -> tuple[type[Exception], ...]:
        return ERRORS

    def call(self, command: Command) -> Any:
        try:
            return self.storage.execute_command(*command)
        except ERRORS as error:
            if self.wrap_exceptions:
                raise StorageError(error) from error
            raise

    def take(self, policy: Policy, key: str, cost: int = 1) -> Reply:
        return Reply(*self.call(policy.take(f"{self.key_prefix}:{key}", cost)))

    def peek(self, policy: Policy, key: str, cost: int = 1) -> Reply:
        return Reply(*self.call(policy.peek(f"{self.key_prefix}:{key}", cost)))

    def delete(self, policy: Policy, key: str) -> None:
        self.call(("DEL", f"{self.key_prefix}:{key}{policy.suffix}"))

    # What limits' own strategies ask of a storage. Those below do without.

    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        return self.take(fixed_window(NO_LIMIT, expiry), key, amount).used

    def get(self, key: str) -> int:
        return self.peek(fixed_window(NO_LIMIT, 1), key).used

    def get_expiry(self, key: str) -> float:
        return self.peek(fixed_window(NO_LIMIT, 1), key).reset_time

    def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return bool(self.take(moving_window(limit, expiry), key, amount).allowed)

    def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        reply = self.peek(moving_window(limit, expiry), key)
        return reply.reset_time - expiry, reply.used

    def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return bool(self.take(sliding_window(limit, expiry), key, amount).allowed)

    def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        # What the server weighs and rounds is told as the current window's count: then limits' strategy
        # has nothing to weigh, and comes to what the server decides.
        reply = self.peek(sliding_window(NO_LIMIT, expiry), key)
        return 0, 0.0, reply.used, reply.reset_after_ms / 1000

    def clear_sliding_window(self, key: str, expiry: int) -> None:
        self.delete(sliding_window(1, expiry), key)

    def clear(self, key: str) -> None:
        for suffix in SUFFIXES:  # one by one: in a cluster they may be on several nodes
            self.call(("DEL", f"{self.key_prefix}:{key}{suffix}"))

    def check(self) -> bool:
        """Whether limits can be judged: a PING would also be answered without the module."""
        try:
            return bool(self.peek(fixed_window(1, 1), "check"))
        except Exception:
            return False

    def reset(self) -> int:
        keys = self.storage.scan_iter(match=every_key(self.key_prefix), count=1000)
        return sum(self.storage.delete(key) for key in keys)


class RedisRLClusterStorage(RedisRLStorage):
    STORAGE_SCHEME = ["redis-rl+cluster", "rediss-rl+cluster"]

    @cached_property
    def storage(self) -> Any:  # at the first call: it asks for the slots, which fails where no node answers
        return redis.RedisCluster.from_url(self.url, **self.options)


class AsyncRedisRLStorage(
    limits.aio.storage.Storage,
    limits.aio.storage.MovingWindowSupport,
    limits.aio.storage.SlidingWindowCounterSupport,
):
    STORAGE_SCHEME = [f"async+{scheme}" for scheme in RedisRLStorage.STORAGE_SCHEME]

    def __init__(self, uri: str, wrap_exceptions: bool = False, key_prefix: str = PREFIX, **options: Any) -> None:
        """`options` are those of the client, over the time-outs and the retry of `client_options`."""
        super().__init__(uri, wrap_exceptions)
        self.url, self.key_prefix = client_url(uri), key_prefix
        self.options = client_options(AsyncRetry(NoBackoff(), 0), options)

    @cached_property
    def storage(self) -> Any:
        return redis.asyncio.Redis.from_url(self.url, **self.options)

    @property
    def base_exceptions(self) -> tuple[type[Exception], ...]:
        return ERRORS

    async def call(self, command: Command) -> Any:
        try:
            return await self.storage.execute_command(*command)
        except ERRORS as error:
            if self.wrap_exceptions:
                raise StorageError(error) from error
            raise

    async def take(self, policy: Policy, key: str, cost: int = 1) -> Reply:
        return Reply(*await self.call(policy.take(f"{self.key_prefix}:{key}", cost)))

    async def peek(self, policy: Policy, key: str, cost: int = 1) -> Reply:
        return Reply(*await self.call(policy.peek(f"{self.key_prefix}:{key}", cost)))

    async def delete(self, policy: Policy, key: str) -> None:
        await self.call(("DEL", f"{self.key_prefix}:{key}{policy.suffix}"))

    async def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        return (await self.take(fixed_window(NO_LIMIT, expiry), key, amount)).used

    async def get(self, key: str) -> int:
        return (await self.peek(fixed_window(NO_LIMIT, 1), key)).used

    async def get_expiry(self, key: str) -> float:
        return (await self.peek(fixed_window(NO_LIMIT, 1), key)).reset_time

    async def acquire_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return bool((await self.take(moving_window(limit, expiry), key, amount)).allowed)

    async def get_moving_window(self, key: str, limit: int, expiry: int) -> tuple[float, int]:
        reply = await self.peek(moving_window(limit, expiry), key)
        return reply.reset_time - expiry, reply.used

    async def acquire_sliding_window_entry(self, key: str, limit: int, expiry: int, amount: int = 1) -> bool:
        return bool((await self.take(sliding_window(limit, expiry), key, amount)).allowed)

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        reply = await self.peek(sliding_window(NO_LIMIT, expiry), key)
        return 0, 0.0, reply.used, reply.reset_after_ms / 1000

    async def clear_sliding_window(self, key: str, expiry: int) -> None:
        await self.delete(sliding_window(1, expiry), key)

    async def clear(self, key: str) -> None:
        for suffix in SUFFIXES:
            await self.call(("DEL", f"{self.key_prefix}:{key}{suffix}"))

    async def check(self) -> bool:
        try:
            return bool(await self.peek(fixed_window(1, 1), "check"))
        except Exception:
            return False

    async def reset(self) -> int:
        keys = self.storage.scan_iter(match=every_key(self.key_prefix), count=1000)
        return sum([await self.storage.delete(key) async for key in keys])


class AsyncRedisRLClusterStorage(AsyncRedisRLStorage):
    STORAGE_SCHEME = [f"async+{scheme}" for scheme in RedisRLClusterStorage.STORAGE_SCHEME]

    @cached_property
    def storage(self) -> Any:
        return redis.asyncio.RedisCluster.from_url(self.url, **self.options)


def every_key(prefix: str) -> str:
    return re.sub(r"([*?[\]\\])", r"\\\1", prefix) + ":*"


class Strategy(limits.strategies.RateLimiter):
    """`hit` is one command, which decides; `test` and `get_window_stats` are RL.PEEK; `clear` is DEL."""

    storage: RedisRLStorage

    def policy(self, limit: int, seconds: int) -> Policy:
        raise NotImplementedError

    def take(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> Reply:
        """`hit`, with all that the server says of it. `cost` is at least 1."""
        if item.amount == 0:
            return NOBODY
        policy = self.policy(item.amount, item.get_expiry())
        return self.storage.take(policy, item.key_for(*identifiers), cost)

    def peek(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> Reply:
        """`test` in the same way."""
        if item.amount == 0:
            return NOBODY
        policy = self.policy(item.amount, item.get_expiry())
        return self.storage.peek(policy, item.key_for(*identifiers), cost)

    def hit(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:
        return cost == 0 or bool(self.take(item, *identifiers, cost=cost).allowed)

    def test(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:
        return cost == 0 or bool(self.peek(item, *identifiers, cost=cost).allowed)

    def get_window_stats(self, item: RateLimitItem, *identifiers: str) -> WindowStats:
        reply = self.peek(item, *identifiers)
        return WindowStats(reply.reset_time, reply.remaining)

    def clear(self, item: RateLimitItem, *identifiers: str) -> None:
        self.storage.delete(self.policy(1, 1), item.key_for(*identifiers))


class FixedWindow(Strategy):
    policy = staticmethod(fixed_window)


class SlidingWindow(Strategy):
    policy = staticmethod(sliding_window)


class MovingWindow(Strategy):
    policy = staticmethod(moving_window)


class TokenBucket(Strategy):
    """At most `amount` at once, and `amount` per period, evenly."""

    policy = staticmethod(token_bucket)


class AsyncStrategy(limits.aio.strategies.RateLimiter):
    storage: AsyncRedisRLStorage

    def policy(self, limit: int, seconds: int) -> Policy:
        raise NotImplementedError

    async def take(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> Reply:
        """`hit`, with all that the server says of it. `cost` is at least 1."""
        if item.amount == 0:
            return NOBODY
        policy = self.policy(item.amount, item.get_expiry())
        return await self.storage.take(policy, item.key_for(*identifiers), cost)

    async def peek(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> Reply:
        """`test` in the same way."""
        if item.amount == 0:
            return NOBODY
        policy = self.policy(item.amount, item.get_expiry())
        return await self.storage.peek(policy, item.key_for(*identifiers), cost)

    async def hit(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:
        return cost == 0 or bool((await self.take(item, *identifiers, cost=cost)).allowed)

    async def test(self, item: RateLimitItem, *identifiers: str, cost: int = 1) -> bool:
        return cost == 0 or bool((await self.peek(item, *identifiers, cost=cost)).allowed)

    async def get_window_stats(self, item: RateLimitItem, *identifiers: str) -> WindowStats:
        reply = await self.peek(item, *identifiers)
        return WindowStats(reply.reset_time, reply.remaining)

    async def clear(self, item: RateLimitItem, *identifiers: str) -> None:
        await self.storage.delete(self.policy(1, 1), item.key_for(*identifiers))


class AsyncFixedWindow(AsyncStrategy):
    policy = staticmethod(fixed_window)


class AsyncSlidingWindow(AsyncStrategy):
    policy = staticmethod(sliding_window)


class AsyncMovingWindow(AsyncStrategy):
    policy = staticmethod(moving_window)


class AsyncTokenBucket(AsyncStrategy):
    policy = staticmethod(token_bucket)


def register(strategies: Any, ours: dict[str, Any], storage: type) -> None:
    """Strategies by name, as Flask-Limiter and slowapi take them.

    On another storage, such as the one in memory that they fall back to, a name means what it means in
    limits. That has no token bucket: there it is a moving window.
    """

    def by_storage(on_ours: Any, on_others: Any) -> Any:
        return lambda given: (on_ours if isinstance(given, storage) else on_others)(given)

    for name, strategy in ours.items():
        strategies[name] = by_storage(strategy, strategies.get(name, strategies["moving-window"]))


register(
    limits.strategies.STRATEGIES,
    {
        "token-bucket": TokenBucket,
        "fixed-window": FixedWindow,
        "sliding-window-counter": SlidingWindow,
        "moving-window": MovingWindow,
    },
    RedisRLStorage,
)
register(
    limits.aio.strategies.STRATEGIES,
    {
        "token-bucket": AsyncTokenBucket,
        "fixed-window": AsyncFixedWindow,
        "sliding-window-counter": AsyncSlidingWindow,
        "moving-window": AsyncMovingWindow,
    },
    AsyncRedisRLStorage,
)
