"""redis-py: at most 2 jobs of a key at the same time, and 10 a minute. Lines "start|renew|end KEY ID".

    printf 'start export:42 a\nend export:42 a\n' | REDIS_URL=redis://127.0.0.1:6379 python3 jobs_redis_py.py
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
    # A call that timed out may have been charged: sent again, it would be charged twice.
    retry=Retry(NoBackoff(), 0),
)


def start(key: str, job: str) -> str:
    """Takes a lease and a token, or neither. The braces keep both keys in one slot of a cluster."""
    lease = ("LEASE", 2, 30000, job)
    rate = ("TOKEN", 10, 10, 60000)
    allowed, retry_after_ms, _limits = limiter.execute_command(
        "RL.ALL", 2, f"rl:{{{key}}}:running", f"rl:{{{key}}}:rate", *lease, *rate
    )
    return "200" if allowed else f"429 Retry-After: {-(-retry_after_ms // 1000)}"


def hold(key: str, job: str, word: str) -> str:
    """RENEW every 10 seconds while the job runs; RELEASE at its end."""
    reply = limiter.execute_command("RL.LEASE", f"rl:{{{key}}}:running", 2, 30000, job, word)
    return "200" if reply[0] else "410"  # the lease had ended: another job may run in its place


for line in sys.stdin:
    what, key, job = line.split()
    try:
        if what == "start":
            print(start(key, job), flush=True)
        else:
            print(hold(key, job, {"renew": "RENEW", "end": "RELEASE"}[what]), flush=True)
    except redis.RedisError as error:
        print(503, error, flush=True)  # or go on, if your policy is to let pass
