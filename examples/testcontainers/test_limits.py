"""Tests against a server with the module, which Testcontainers starts and removes.

pip install testcontainers redis pytest
pytest examples/testcontainers

LIMITER_IMAGE names another image than redis-rl, the one that `make image` builds.
"""

import os
import time

import pytest
from testcontainers.community.redis import RedisContainer


@pytest.fixture(scope="session")
def server():
    with RedisContainer(os.environ.get("LIMITER_IMAGE", "redis-rl")) as container:
        yield container.get_client()


@pytest.fixture
def limiter(server):
    server.flushall()
    return server


def test_a_bucket_of_three_refuses_the_fourth_call(limiter):
    calls = [limiter.execute_command("RL.TOKEN", "tenant:42", 3, 1, 60_000) for _ in range(4)]
    assert [allowed for allowed, *_ in calls] == [1, 1, 1, 0]


def test_the_wait_that_a_refusal_names_is_enough(limiter):
    call = "RL.FIXED", "tenant:42", 1, 200
    limiter.execute_command(*call)
    allowed, limit, remaining, retry_after_ms, reset_after_ms = limiter.execute_command(*call)
    assert (allowed, remaining) == (0, 0)
    time.sleep(retry_after_ms / 1000)
    assert limiter.execute_command(*call)[0] == 1
