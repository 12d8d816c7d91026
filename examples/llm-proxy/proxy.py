"""A proxy in front of a language model's API that limits each API key with redis-rl.

    pip install -r requirements.txt
    PROXY_UPSTREAM=http://127.0.0.1:9000 PROXY_KEYS=$(printf %s my-key | sha256sum | cut -c 1-64) uvicorn --factory proxy:app
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import json
import math
import os
from collections.abc import AsyncIterator
from typing import Any

import httpx
import redis.asyncio as redis
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from limiter import Admitted, Limiter, Limits, Refused

DEFAULT_ANSWER = 1_000  # tokens, where a request names no maximum
MOST_BYTES = 8 * 2**20


def error(status: int, code: str, message: str, headers: dict[str, str] | None = None) -> Response:
    return JSONResponse({"error": {"code": code, "message": message}}, status, headers)


def remaining(left: dict[str, int]) -> dict[str, str]:
    return {f"x-ratelimit-remaining-{name}": str(units) for name, units in left.items()}


def refusal(refused: Refused) -> Response:
    headers = remaining(refused.remaining)
    if refused.retry_after_ms < 0:
        return error(429, "too_large", "The request needs more tokens than a minute has.", headers)
    headers["retry-after"] = str(math.ceil(refused.retry_after_ms / 1000))
    return error(429, refused.limit, f"Too many {refused.limit}. Try again after Retry-After seconds.", headers)


def answer_tokens(call: dict[str, Any]) -> int:
    """The most that the answers may have. Raises `ValueError` where that is no positive integer."""

    def number(name: str, otherwise: int, most: int) -> int:
        value = call.get(name)
        if value is None:
            return otherwise
        if type(value) is not int or not 1 <= value <= most:
            raise ValueError(f"{name} must be an integer between 1 and {most}")
        return value

    # An upstream may know only one of the two names.
    names = [name for name in ("max_tokens", "max_completion_tokens") if call.get(name) is not None]
    each = max([number(name, 0, 10_000_000) for name in names], default=DEFAULT_ANSWER)
    return each * number("n", 1, 128)


async def read(request: Request) -> tuple[dict[str, Any], int]:
    """The call, and how many tokens its prompt may have: about four bytes make one. Raises `ValueError`."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise ValueError(f"a request has at most {MOST_BYTES} bytes")
    try:
        call = json.loads(body)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(call, dict):
        raise ValueError("not an object")
    return call, len(body) // 4


class Answer:
    """Asks the upstream, passes its answer on, and settles when it ends, whatever ends it."""

    def __init__(self, admitted: Admitted, client: httpx.AsyncClient, post: httpx.Request, prompt: int) -> None:
        self.admitted = admitted
        self.client = client
        self.post = post
        self.upstream: httpx.Response | None = None
        self.used: int | None = prompt  # until the upstream says what it counted; None: it failed
        self.begun = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def hung_up() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass

        # Whichever is first: the answer ends, the caller hangs up, or the lease is lost.
        passing = asyncio.create_task(self.pass_on(scope, receive, send))
        tasks = {passing, asyncio.create_task(hung_up()), asyncio.create_task(self.admitted.keep())}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.shield(self.finish())
        if not passing.cancelled():
            passing.result()  # raises what broke the answer off, and the connection breaks off too
        elif not self.begun:
            await error(504, "took_too_long", "The place of this request was lost.")(scope, receive, send)

    async def finish(self) -> None:
        try:
            if self.upstream is not None:
                await self.upstream.aclose()
        finally:
            if self.used is None:
                await self.admitted.undo()
            else:
                await self.admitted.settle(self.used)

    async def pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            self.upstream = await self.client.send(self.post, stream=True)
            parts = self.parts(self.upstream)
            part = await anext(parts, b"")
        except httpx.HTTPError:
            self.used = None
            self.begun = True
            await error(502, "upstream_failed", "The model does not answer.")(scope, receive, send)
            return
        headers = {
            "content-type": self.upstream.headers.get("content-type", "application/json"),
            **remaining(self.admitted.remaining),
        }
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        self.begun = True
        await send({"type": "http.response.start", "status": self.upstream.status_code, "headers": raw})
        while part:
            await send({"type": "http.response.body", "body": part, "more_body": True})
            part = await anext(parts, b"")
        await send({"type": "http.response.body", "body": b""})

    async def parts(self, upstream: httpx.Response) -> AsyncIterator[bytes]:
        if upstream.status_code >= 400:
            self.used = None
            yield await upstream.aread()
        elif upstream.headers.get("content-type", "").startswith("text/event-stream"):
            async for line in upstream.aiter_lines():
                if line.startswith("data: {"):
                    # Each part is about a token, until one says what the upstream counted.
                    self.used = usage(line.removeprefix("data: "), (self.used or 0) + 1)
                yield f"{line}\n".encode()
        else:
            body = await upstream.aread()
            self.used = usage(body, self.admitted.estimate)
            yield body


def usage(text: str | bytes, otherwise: int) -> int:
    """The upstream's own count of tokens, where it says one."""
    try:
        return int(json.loads(text)["usage"]["total_tokens"])
    except (ValueError, KeyError, TypeError):
        return otherwise


async def complete(request: Request) -> Any:
    state = request.app.state
    key = request.headers.get("authorization", "").removeprefix("Bearer ")
    caller = hashlib.sha256(key.encode()).hexdigest()
    if caller not in state.callers:
        return error(401, "unknown_key", "Unknown API key.")
    try:
        call, prompt = await read(request)
        estimate = prompt + answer_tokens(call)
        if call.get("stream"):
            call["stream_options"] = {"include_usage": True}  # so that the last part says what was used
        post = state.upstream.build_request("POST", request.url.path, json=call)
    except ValueError as wrong:
        return error(400, "invalid_request", str(wrong))

    try:
        taken = await state.limiter.take(caller, estimate)
    except redis.RedisError:
        return error(503, "limiter_unavailable", "The rate limiter does not answer.")
    if isinstance(taken, Refused):
        return refusal(taken)
    return Answer(taken, state.upstream, post, prompt)


def make(
    redis_url: str, upstream: str, callers: set[str], limits: Limits, upstream_key: str = "", timeout: float = 0.25
) -> Starlette:
    """`callers` are the SHA-256 of the API keys, in hexadecimal; `timeout` is Redis', in seconds."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.callers = callers
        app.state.limiter = Limiter(redis_url, limits, timeout)
        headers = {"authorization": f"Bearer {upstream_key}"} if upstream_key else {}
        client = httpx.AsyncClient(base_url=upstream, headers=headers, timeout=httpx.Timeout(60, connect=5))
        async with client as app.state.upstream:
            yield
        await app.state.limiter.redis.aclose()

    return Starlette(routes=[Route("/v1/chat/completions", complete, methods=["POST"])], lifespan=lifespan)


def app() -> Starlette:
    """The proxy that the environment describes."""
    fields = [field.name for field in dataclasses.fields(Limits)]
    limits = {name: int(os.environ[f"PROXY_{name.upper()}"]) for name in fields if f"PROXY_{name.upper()}" in os.environ}
    return make(
        os.environ.get("PROXY_REDIS", "redis://127.0.0.1:6379"),
        os.environ["PROXY_UPSTREAM"],
        set(os.environ["PROXY_KEYS"].split()),
        Limits(**limits),
        os.environ.get("PROXY_UPSTREAM_KEY", ""),
        int(os.environ.get("PROXY_TIMEOUT_MS") or 250) / 1000,
    )
