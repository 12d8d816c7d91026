"""redis-py: take an estimate, do the work, settle. One request per line "KEY ESTIMATE USAGE".

    printf 'tenant:42 50 30\n' | REDIS_URL=redis://127.0.0.1:6379 python3 settle_redis_py.py
"""

import os
import sys

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

limiter = redis.Redis.from_url(
    os.environ["REDIS_URL"],
    socket_connect_timeout=0.25,
    socket_timeout=0.25,
    # A call that timed out may have been done: sent again, it would be done twice.
    retry=Retry(NoBackoff(), 0),
)


def call(key: str, *charge: str | int) -> list[int]:
    return limiter.execute_command("RL.TOKEN", key, 100, 10, 1000, *charge)


def settle(key: str, estimate: int, usage: int) -> str:
    """After an admitted `COST estimate`, and only then. Says what was done."""
    try:
        if usage < estimate:
            call(key, "REFUND", estimate - usage)
            return f"refund {estimate - usage}"
        if usage > estimate:
            call(key, "COST", usage - estimate, "FORCE")
            return f"force {usage - estimate}"
        return "even"
    except redis.RedisError as error:
        return f"unsettled: {error}"  # the work is done: log it, and answer the caller all the same


def request(key: str, estimate: int, work) -> str:
    try:
        allowed, _limit, _remaining, retry_after_ms, _reset_after_ms = call(key, "COST", estimate)
    except redis.RedisError as error:
        return f"503 {error}"  # or go on, if your policy is to let pass; then there is nothing to settle
    if not allowed:  # not charged: nothing to settle
        return "429" if retry_after_ms < 0 else f"429 Retry-After: {-(-retry_after_ms // 1000)}"
    return f"200 {settle(key, estimate, work())}"


for line in sys.stdin:
    key, estimate, usage = line.split()
    print(request(key, int(estimate), lambda: int(usage)), flush=True)
