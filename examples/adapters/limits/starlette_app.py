"""Starlette (and FastAPI) on redis-rl, without blocking the event loop: an ASGI middleware on limits.aio.

    STORAGE_URI=async+redis-rl://127.0.0.1:6379 uvicorn --factory starlette_app:from_environment
    curl -i http://127.0.0.1:8000/
"""

import math
import os

import limits_redis_rl
from limits import RateLimitItem, parse
from limits.errors import StorageError
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send


class RateLimit:
    def __init__(self, app: ASGIApp, limiter: limits_redis_rl.AsyncStrategy, limit: RateLimitItem) -> None:
        self.app, self.limiter, self.limit = app, limiter, limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self.app
        if scope["type"] == "http" and (refusal := await self.refusal(Request(scope))):
            app = refusal
        await app(scope, receive, send)

    async def refusal(self, request: Request) -> PlainTextResponse | None:
        caller = request.client.host if request.client else "unknown"
        try:
            reply = await self.limiter.take(self.limit, caller)
        except StorageError:  # nobody can judge: 503, or None, if your policy is to let pass
            return PlainTextResponse("try again later", 503)
        if reply.allowed:
            return None
        seconds = math.ceil(reply.retry_after_ms / 1000)  # -1 ms: never
        headers = {"Retry-After": str(seconds)} if reply.retry_after_ms >= 0 else {}
        return PlainTextResponse("too many requests", 429, headers)


async def hello(request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello")


def create_app(storage_uri: str) -> Starlette:
    storage = limits_redis_rl.AsyncRedisRLStorage(storage_uri, wrap_exceptions=True)
    limiter = limits_redis_rl.AsyncTokenBucket(storage)
    middleware = Middleware(RateLimit, limiter=limiter, limit=parse("3/minute"))
    return Starlette(routes=[Route("/", hello)], middleware=[middleware])


def from_environment() -> Starlette:
    return create_app(os.environ["STORAGE_URI"])
