"""What a strategy decides, on a server that works."""

import time
from typing import Any

import limits
import limits_redis_rl
import pytest
from limits import parse
from limits.errors import ConfigurationError

from conftest import NAMES, Library, Server, wait_for

THREE = parse("3/minute")


def test_admits_the_limit_and_refuses_what_is_over(limiter: Any) -> None:
    assert [limiter.hit(THREE, "a") for _ in range(5)] == [True, True, True, False, False]
    assert limiter.hit(THREE, "b")


def test_test_says_what_hit_would(limiter: Any) -> None:
    for cost in (1, 2):
        assert limiter.test(THREE, "a", cost=cost)
        assert limiter.hit(THREE, "a", cost=cost)
    assert not limiter.test(THREE, "a")
    assert not limiter.hit(THREE, "a")


def test_take_and_peek_tell_the_whole_reply(limiter: Any) -> None:
    assert limiter.take(THREE, "a", cost=2)[:3] == (1, 3, 1)
    assert limiter.peek(THREE, "a")[:3] == (1, 3, 1)
    refused = limiter.take(THREE, "a", cost=2)
    assert refused[:3] == (0, 3, 1)
    assert refused.retry_after_ms > 0
    assert limiter.take(THREE, "a", cost=4).retry_after_ms == -1


def test_a_refused_hit_is_not_charged(limiter: Any, server: Server) -> None:
    assert limiter.hit(THREE, "a", cost=2)
    (key,) = server.client.keys()
    before = server.client.execute_command("DUMP", key, NEVER_DECODE=True)
    for _ in range(3):
        assert not limiter.hit(THREE, "a", cost=2)
    assert server.client.execute_command("DUMP", key, NEVER_DECODE=True) == before
    assert limiter.hit(THREE, "a")


def test_a_look_writes_nothing(limiter: Any, server: Server) -> None:
    assert limiter.test(THREE, "a", cost=3)
    assert limiter.get_window_stats(THREE, "a").remaining == 3
    assert server.client.keys() == []


def test_stats_count_down(limiter: Any) -> None:
    assert limiter.get_window_stats(THREE, "a").reset_time == pytest.approx(time.time(), abs=1)
    for remaining in (2, 1, 0):
        assert limiter.hit(THREE, "a")
        assert limiter.get_window_stats(THREE, "a").remaining == remaining


@pytest.mark.parametrize("name, seconds", [("fixed-window", 60), ("moving-window", 60), ("token-bucket", 20)])
def test_the_reset_of_a_spent_limit_is_when_the_next_hit_is_admitted(limiter: Any, seconds: int) -> None:
    assert limiter.hit(THREE, "a", cost=3)
    assert limiter.get_window_stats(THREE, "a").reset_time == pytest.approx(time.time() + seconds, abs=1)


@pytest.mark.parametrize("name, seconds", [("fixed-window", 60), ("moving-window", 60), ("token-bucket", 40)])
def test_the_reset_of_another_is_when_nothing_is_used(limiter: Any, seconds: int) -> None:
    assert limiter.hit(THREE, "a", cost=2)
    assert limiter.get_window_stats(THREE, "a").reset_time == pytest.approx(time.time() + seconds, abs=1)


def test_who_waits_until_the_reset_is_admitted(limiter: Any) -> None:
    limit = parse("2/second")
    while limiter.hit(limit, "a"):
        pass
    reset_time, remaining = limiter.get_window_stats(limit, "a")
    if remaining == 0:  # else it came back in between
        assert time.time() < reset_time < time.time() + 2
        time.sleep(max(0, reset_time - time.time()))
    assert limiter.hit(limit, "a")


def test_a_bucket_fills_evenly(library: Library, server: Server) -> None:
    limiter = library.strategy("token-bucket", library.storage(server))
    limit = parse("20/second")
    assert limiter.hit(limit, cost=20)
    seen = set()
    wait_for("a full bucket", lambda: seen.add(limiter.get_window_stats(limit).remaining) or 20 in seen)
    assert len(seen) > 3  # a window would go from 0 to 20 at once


def test_clear_forgets(limiter: Any, server: Server) -> None:
    assert limiter.hit(THREE, "a", cost=3)
    limiter.clear(THREE, "a")
    assert server.client.keys() == []
    assert limiter.hit(THREE, "a", cost=3)


def test_nothing_per_minute_is_nobody(limiter: Any) -> None:
    nobody = parse("0/minute")
    assert not limiter.hit(nobody, "a")
    assert not limiter.test(nobody, "a")
    assert limiter.take(nobody, "a").retry_after_ms == -1
    reset_time, remaining = limiter.get_window_stats(nobody, "a")
    assert (reset_time, remaining) == (pytest.approx(time.time(), abs=1), 0)


def test_a_cost_of_nothing_always_fits(limiter: Any, server: Server) -> None:
    assert limiter.hit(THREE, "a", cost=3)
    assert limiter.hit(THREE, "a", cost=0)
    assert limiter.test(THREE, "a", cost=0)


def test_a_cost_above_the_limit_is_refused(limiter: Any, server: Server) -> None:
    assert not limiter.hit(THREE, "a", cost=4)
    assert server.client.keys() == []


def test_a_moving_window_takes_at_most_10000(library: Library, server: Server) -> None:
    limiter = library.strategy("moving-window", library.storage(server))
    assert limiter.hit(parse("10000/minute"))
    for call in (limiter.hit, limiter.test, limiter.get_window_stats):
        with pytest.raises(ConfigurationError, match="token-bucket"):
            call(parse("10001/minute"))


def test_strategies_do_not_meet_in_one_key(library: Library, server: Server) -> None:
    storage = library.storage(server)
    limiters = [library.strategy(name, storage) for name in NAMES]
    for limiter in limiters:
        assert limiter.hit(THREE, "a", cost=3)
        assert not limiter.hit(THREE, "a")
    assert len(server.client.keys()) == 4
    storage.clear(THREE.key_for("a"))
    assert server.client.keys() == []


def test_a_name_means_the_servers_decision_here_and_that_of_limits_elsewhere(
    library: Library, name: str, server: Server
) -> None:
    strategies = limits.strategies if library.kind == "sync" else limits.aio.strategies
    in_memory = library.strategy(name, library.storage_at(f"{library.prefix}memory://"))
    assert isinstance(getattr(in_memory, "target", in_memory), vars(strategies)["RateLimiter"])
    assert type(getattr(in_memory, "target", in_memory)).__module__ == strategies.__name__
    assert [in_memory.hit(THREE) for _ in range(4)] == [True, True, True, False]
    here = library.strategy(name, library.storage(server))
    assert type(getattr(here, "target", here)).__module__ == "limits_redis_rl"


def test_another_limit_has_another_key(limiter: Any) -> None:
    """As everywhere in limits, whose keys name the amount: a changed limit starts with nothing used."""
    assert limiter.hit(THREE, "a", cost=3)
    assert limiter.hit(parse("4/minute"), "a", cost=4)


class TestLimitsOwnStrategies:
    """Those classes, which ask the storage for counts."""

    @pytest.fixture(params=["FixedWindow", "MovingWindow", "SlidingWindowCounter"])
    def limiter(self, request: pytest.FixtureRequest, library: Library, server: Server) -> Any:
        strategies = limits.strategies if library.kind == "sync" else limits.aio.strategies
        strategy = vars(strategies)[f"{request.param}RateLimiter"]
        return library.strategy(strategy, library.storage(server))

    def test_admit_the_limit(self, limiter: Any) -> None:
        assert [limiter.hit(THREE, "a") for _ in range(5)] == [True, True, True, False, False]

    def test_count_and_clear(self, limiter: Any, server: Server) -> None:
        assert limiter.get_window_stats(THREE, "a").remaining == 3
        assert limiter.hit(THREE, "a", cost=2)
        reset_time, remaining = limiter.get_window_stats(THREE, "a")
        assert remaining == 1
        assert time.time() < reset_time < time.time() + 61
        assert not limiter.test(THREE, "a", cost=2)
        limiter.clear(THREE, "a")
        assert server.client.keys() == []


@pytest.mark.parametrize("theirs", [True, False], ids=["limits' class", "ours"])
@pytest.mark.parametrize("hours", [5, 7, 11, 13, 17, 19, 23])
def test_a_sliding_window_never_contradicts_itself(
    library: Library, server: Server, hours: int, theirs: bool
) -> None:
    """What is left of the window before is no whole number, and limits rounds it down where the server doesn't."""
    strategies = limits.strategies if library.kind == "sync" else limits.aio.strategies
    strategy = strategies.SlidingWindowCounterRateLimiter if theirs else "sliding-window-counter"
    limiter, limit = library.strategy(strategy, library.storage(server)), parse(f"7/{hours} hours")
    assert limiter.hit(limit, cost=7)
    (key,) = server.client.keys()
    tag, window, start, *counts = server.client.get(key).split(":")
    server.client.set(key, ":".join([tag, window, str(int(start) - int(window)), *counts]), keepttl=True)
    remaining = limiter.get_window_stats(limit).remaining
    for cost in range(7, 0, -1):
        admitted = limiter.test(limit, cost=cost)
        assert admitted == (cost <= remaining)
        assert limiter.hit(limit, cost=cost) == admitted
        if admitted:
            break


def test_a_bucket_of_another_size_is_a_class_of_one_line(server: Server) -> None:
    class Burst(limits_redis_rl.TokenBucket):
        policy = staticmethod(lambda limit, s: limits_redis_rl.Policy(("TOKEN", 5, limit, s * 1000), ":burst"))

    limiter = Burst(limits_redis_rl.RedisRLStorage(server.uri("redis-rl")))
    assert [limiter.hit(THREE) for _ in range(6)] == [True] * 5 + [False]
    assert limiter.get_window_stats(THREE).reset_time == pytest.approx(time.time() + 20, abs=1)
