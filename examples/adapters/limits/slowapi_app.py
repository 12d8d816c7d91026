"""slowapi on redis-rl.

    STORAGE_URI=redis-rl://127.0.0.1:6379 uvicorn --factory slowapi_app:from_environment
    curl -i http://127.0.0.1:8000/
"""

import os
from typing import Any

import limits_redis_rl  # noqa: F401 - registers redis-rl:// and token-bucket
from slowapi import Limiter, _rate_limit_exceeded_handler
from slowapi.errors import RateLimitExceeded
from slowapi.util import get_remote_address
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route


def create_app(storage_uri: str, **options: Any) -> Starlette:
    limiter = Limiter(
        key_func=get_remote_address,
        storage_uri=storage_uri,
        **{"strategy": "token-bucket", "headers_enabled": True, **options},
    )

    # `def`, not `async def`: slowapi asks Redis without await, which here happens in a thread.
    @limiter.limit("3/minute")
    def hello(request: Request) -> PlainTextResponse:
        return PlainTextResponse("hello")

    app = Starlette(routes=[Route("/", hello)])
    app.state.limiter = limiter
    app.add_exception_handler(RateLimitExceeded, _rate_limit_exceeded_handler)  # type: ignore[arg-type]
    return app


def from_environment() -> Starlette:
    return create_app(os.environ["STORAGE_URI"])
