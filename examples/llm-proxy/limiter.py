"""Three limits per caller in one step, and the settling of a request whose cost is known late.

`take` asks Redis once. What it returns is settled once: by `settle` with the tokens that were used, or by
`undo` if the request failed. No call is sent a second time, as it may have been done.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
import uuid
from typing import Any

import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

log = logging.getLogger("llm-proxy")

MINUTE_MS = 60_000
REFUND_WITHIN = 60.0  # seconds: after that all has come back by itself, and a refund would be a gift


@dataclasses.dataclass(frozen=True)
class Limits:
    """What one caller may use. A bucket holds a minute's worth, and fills evenly."""

    requests: int = 60  # a minute
    tokens: int = 100_000  # a minute, and the most that one request may be estimated at
    streams: int = 5  # requests at the same time
    lease_ms: int = 30_000  # how long a crashed proxy blocks their places


@dataclasses.dataclass(frozen=True)
class Refused:
    limit: str  # the first one that stood in the way: requests, tokens, streams
    retry_after_ms: int  # -1: never, the estimate is above the limit
    remaining: dict[str, int]


class Limiter:
    def __init__(self, url: str, limits: Limits, timeout: float) -> None:
        self.limits = limits
        # A limiter that hangs is worse than none, and a call that got no answer may have been done.
        self.redis = redis.Redis.from_url(
            url, socket_connect_timeout=timeout, socket_timeout=timeout, retry=Retry(NoBackoff(), 0)
        )

    async def ask(self, *words: str | int) -> list[Any]:
        reply: list[Any] = await self.redis.execute_command(*words)  # type: ignore[no-untyped-call]
        return reply

    async def take(self, caller: str, estimate: int) -> Admitted | Refused:
        """Raises `redis.RedisError` if Redis can't judge."""
        request = Admitted(self, caller, estimate)
        try:
            allowed, retry_after_ms, replies = await request.call(
                requests=("COST", 1), tokens=("COST", estimate), streams=()
            )
        except (redis.RedisError, asyncio.CancelledError):
            # The lease may have been taken. To release one that was not taken does no harm.
            await asyncio.shield(request.release())
            raise
        remaining = {name: reply[2] for name, reply in zip(("requests", "tokens", "streams"), replies)}
        if allowed:
            request.remaining = remaining
            return request
        limit = next(name for name, reply in zip(remaining, replies) if not reply[0])
        return Refused(limit, retry_after_ms, remaining)


class Admitted:
    """A request that was charged with its estimate, and holds a lease."""

    def __init__(self, limiter: Limiter, caller: str, estimate: int) -> None:
        limits = limiter.limits
        self.limiter = limiter
        self.caller = caller
        self.estimate = estimate
        self.lease = uuid.uuid4().hex
        self.taken_at = time.monotonic()
        self.remaining: dict[str, int] = {}
        self.policies: dict[str, tuple[str | int, ...]] = {
            "requests": ("TOKEN", limits.requests, limits.requests, MINUTE_MS),
            "tokens": ("TOKEN", limits.tokens, limits.tokens, MINUTE_MS),
            "streams": ("LEASE", limits.streams, limits.lease_ms, self.lease),
        }

    def key(self, name: str) -> str:
        return f"llm:{{{self.caller}}}:{name}"  # one caller, one slot of a cluster

    async def call(self, **words: tuple[str | int, ...]) -> list[Any]:
        """One RL.ALL on the named limits, each with the words that end its policy."""
        policies = [word for name, end in words.items() for word in (*self.policies[name], *end)]
        return await self.limiter.ask("RL.ALL", len(words), *map(self.key, words), *policies)

    async def keep(self) -> None:
        """Renews the lease, and returns once it is lost. Counted from when a call was sent, so never too late."""
        seconds = self.limiter.limits.lease_ms / 1000
        ends_at = self.taken_at + seconds
        while (left := ends_at - time.monotonic()) > 0:
            await asyncio.sleep(min(seconds / 3, left))
            sent_at = time.monotonic()
            try:
                lease = self.policies["streams"][1:]
                renewed, *_ = await self.limiter.ask("RL.LEASE", self.key("streams"), *lease, "RENEW")
            except redis.RedisError as error:
                log.warning("a lease was not renewed: %s", error)
                continue
            if not renewed:
                return
            ends_at = sent_at + seconds

    def may_refund(self) -> bool:
        return time.monotonic() - self.taken_at < REFUND_WITHIN

    async def settle(self, used: int) -> None:
        """Charges what was used instead of the estimate, and gives the place back."""
        if used > self.estimate:
            await self._settle(tokens=("COST", used - self.estimate, "FORCE"))
        elif used < self.estimate and self.may_refund():
            await self._settle(tokens=("REFUND", self.estimate - used))
        else:
            await self._settle()

    async def undo(self) -> None:
        """The request failed and costs nothing."""
        if self.may_refund():
            await self._settle(requests=("REFUND", 1), tokens=("REFUND", self.estimate))
        else:
            await self._settle()

    async def release(self) -> None:
        await self._settle()

    async def _settle(self, **words: tuple[str | int, ...]) -> None:
        # None of these words can be refused, so all are done in one step.
        try:
            await self.call(**words, streams=("RELEASE",))
        except redis.RedisError as error:
            # The answer has been sent. The charge stays; the lease ends by itself.
            log.warning("a request was not settled: %s", error)
