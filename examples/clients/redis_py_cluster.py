"""redis-py on a cluster: one decision per line "KEY COST" of standard input.

    printf 'tenant:42 1\n' | REDIS_URL=redis://127.0.0.1:6379 python3 redis_py_cluster.py

It asks the cluster (COMMAND) where the key of each command is, so the call is that of redis_py.py.
"""

import functools
import os
import sys

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisClusterException
from redis.retry import Retry


@functools.cache  # once connected: it asks for the slots, which fails where no node answers
def limiter() -> redis.RedisCluster:
    return redis.RedisCluster.from_url(
        os.environ["REDIS_URL"],  # any node: it names the others
        socket_connect_timeout=0.25,
        socket_timeout=0.25,
        # A call that timed out may have been charged: sent again, it would be charged twice.
        # Redirects are followed all the same.
        retry=Retry(NoBackoff(), 0),
    )


def check(key: str, cost: int = 1) -> tuple[int, dict[str, str], str]:
    """HTTP status, headers, and why there was no judgement."""
    try:
        allowed, _limit, _remaining, retry_after_ms, _reset_after_ms = limiter().execute_command(
            "RL.TOKEN", key, 100, 10, 1000, "COST", cost
        )
    except (redis.RedisError, RedisClusterException) as error:  # the second is none of the first
        return 503, {}, str(error)  # or 200, if your policy is to let pass
    if allowed:
        return 200, {}, ""
    if retry_after_ms < 0:  # costs more than the bucket holds: no wait helps
        return 429, {}, ""
    return 429, {"Retry-After": str(-(-retry_after_ms // 1000))}, ""


for line in sys.stdin:
    key, cost = line.split()
    status, headers, reason = check(key, int(cost))
    print(status, *(f"{name}: {value}" for name, value in headers.items()), reason, flush=True)
