"""Many callers, many processes, changes while they call, and the keys of limits' own Redis storage."""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE, Popen

import limits_redis_rl
import pytest
from limits import RateLimitItem, parse
from limits.aio.strategies import STRATEGIES as ASYNC_STRATEGIES
from limits.storage import RedisStorage, storage_from_string
from limits.strategies import (
    STRATEGIES,
    FixedWindowRateLimiter,
    MovingWindowRateLimiter,
    RateLimiter,
    SlidingWindowCounterRateLimiter,
)

from conftest import NAMES, Library, Server

CALLERS = 50


def by_threads(limiter: RateLimiter, items: list[RateLimitItem]) -> list[bool]:
    with ThreadPoolExecutor(len(items)) as pool:
        return list(pool.map(limiter.hit, items))


def test_fifty_threads_at_limit_three(server: Server, name: str) -> None:
    limiter = STRATEGIES[name](storage_from_string(server.uri("redis-rl")))
    assert sum(by_threads(limiter, [parse("3/hour")] * CALLERS)) == 3


def test_fifty_tasks_at_limit_three(server: Server, name: str) -> None:
    async def admitted() -> list[bool]:
        storage = storage_from_string(server.uri("async+redis-rl"))
        limiter = ASYNC_STRATEGIES[name](storage)
        try:
            return await asyncio.gather(*(limiter.hit(parse("3/hour")) for _ in range(CALLERS)))
        finally:
            assert isinstance(storage, limits_redis_rl.AsyncRedisRLStorage)
            await storage.storage.aclose()

    assert sum(asyncio.run(admitted())) == 3


PROCESS = """
import sys
import limits_redis_rl
from limits import parse
from limits.storage import storage_from_string
from limits.strategies import STRATEGIES

storage = storage_from_string(sys.argv[1])
for name in sys.argv[2:]:
    limiter = STRATEGIES[name](storage)
    input()
    print(sum(limiter.hit(parse("25/hour"), "shared") for _ in range(20)), flush=True)
"""


def test_two_processes_share_a_limit(server: Server) -> None:
    command = [sys.executable, "-c", PROCESS, server.uri("redis-rl"), *NAMES]
    folder = Path(limits_redis_rl.__file__).parent
    with ExitStack() as stack:
        processes = [
            stack.enter_context(Popen(command, cwd=folder, stdin=PIPE, stdout=PIPE, text=True)) for _ in range(2)
        ]
        for name in NAMES:
            for process in processes:
                assert process.stdin
                process.stdin.write("go\n")
                process.stdin.flush()
            admitted = [int(process.stdout.readline()) for process in processes if process.stdout]
            assert sum(admitted) == 25, name


def test_a_changed_limit_counts_by_itself_under_load(server: Server, name: str) -> None:
    """While it is rolled out, both admit: the old limit's callers 5, the new one's 8."""
    limiter = STRATEGIES[name](storage_from_string(server.uri("redis-rl")))
    items = [parse("5/hour"), parse("8/hour")] * 25
    answers = by_threads(limiter, items)
    admitted = [item.amount for item, answer in zip(items, answers, strict=True) if answer]
    assert (admitted.count(5), admitted.count(8)) == (5, 8)


def old_and_new(server: Server) -> tuple[RedisStorage, limits_redis_rl.RedisRLStorage]:
    old = storage_from_string(server.uri("redis"))
    new = storage_from_string(server.uri("redis-rl"))
    assert isinstance(old, RedisStorage) and isinstance(new, limits_redis_rl.RedisRLStorage)
    return old, new


def test_fixed_windows_of_limits_own_storage_go_on(server: Server) -> None:
    """Both count in one key, so old and new processes share a limit while the change is rolled out."""
    old, new = (FixedWindowRateLimiter(old_and_new(server)[0]), STRATEGIES["fixed-window"](old_and_new(server)[1]))
    limit = parse("3/hour")
    assert old.hit(limit, "a") and new.hit(limit, "a") and old.hit(limit, "a")
    assert not new.hit(limit, "a")
    assert not old.hit(limit, "a")
    assert new.get_window_stats(limit, "a").remaining == 0
    assert new.get_window_stats(limit, "a").reset_time == pytest.approx(
        old.get_window_stats(limit, "a").reset_time, abs=2
    )
    assert len(server.client.keys()) == 1


@pytest.mark.parametrize(
    "name, theirs",
    [
        ("moving-window", MovingWindowRateLimiter),
        ("sliding-window-counter", SlidingWindowCounterRateLimiter),
    ],
)
def test_other_windows_of_limits_own_storage_are_not_met(
    server: Server, name: str, theirs: type[RateLimiter]
) -> None:
    old, new = old_and_new(server)
    before, after = theirs(old), STRATEGIES[name](new)
    limit = parse("3/hour")
    assert before.hit(limit, "a", cost=3)
    assert [after.hit(limit, "a") for _ in range(4)] == [True, True, True, False]
    assert not before.hit(limit, "a")


def test_another_prefix_starts_anew(library: Library, server: Server) -> None:
    limit = parse("3/hour")
    for prefix in ("LIMITS", "rl"):
        for name in NAMES:
            limiter = library.strategy(name, library.storage(server, key_prefix=prefix))
            assert limiter.hit(limit, "a", cost=3)
    assert len(server.client.keys("rl:*")) == len(NAMES)
