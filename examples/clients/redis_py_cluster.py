"""redis-py on a cluster: one decision per line "KEY COST", or "TENANT USER COST", of standard input.

    printf 'tenant:42 1\n' | REDIS_URL=redis://127.0.0.1:6379 python3 redis_py_cluster.py

It asks the cluster (COMMAND) where the key of each command is, so the call is that of redis_py.py. For
RL.ALL it would ask twice with each call: so that one names the node.
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


def one(key: str, cost: int = 1) -> tuple[int, int]:
    reply = limiter().execute_command("RL.TOKEN", key, 100, 10, 1000, "COST", cost)
    return reply[0], reply[3]


def both(tenant: str, user: str, cost: int = 1) -> tuple[int, int]:
    """The user's limit and the tenant's, all or none. The braces keep both keys in one slot."""
    keys = (f"rl:{{{tenant}}}:{user}", f"rl:{{{tenant}}}")
    policies = ("TOKEN", 10, 1, 1000, "COST", cost, "TOKEN", 100, 10, 1000, "COST", cost)
    node = limiter().get_node_from_key(keys[0])
    reply = limiter().execute_command("RL.ALL", 2, *keys, *policies, target_nodes=node)
    return reply[0], reply[1]


def check(call, *words) -> tuple[int, dict[str, str], str]:
    """HTTP status, headers, and why there was no judgement."""
    try:
        allowed, retry_after_ms = call(*words)
    except (redis.RedisError, RedisClusterException) as error:  # the second is none of the first
        return 503, {}, str(error)  # or 200, if your policy is to let pass
    if allowed:
        return 200, {}, ""
    if retry_after_ms < 0:  # costs more than the bucket holds: no wait helps
        return 429, {}, ""
    return 429, {"Retry-After": str(-(-retry_after_ms // 1000))}, ""


for line in sys.stdin:
    *names, cost = line.split()
    status, headers, reason = check(one if len(names) == 1 else both, *names, int(cost))
    print(status, *(f"{name}: {value}" for name, value in headers.items()), reason, flush=True)
