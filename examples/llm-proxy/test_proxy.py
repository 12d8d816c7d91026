"""The proxy over HTTP, with a real Redis that has the module, and an upstream whose answers each test chooses.

REDIS_SERVER and RL_MODULE name the server's program and the module.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import limiter
from limiter import Limits
from proxy import make

KEYS = ("key-a", "key-b")
CALLERS = {hashlib.sha256(key.encode()).hexdigest() for key in KEYS}
PROMPT = "Hello"  # the message and the words around it are about ten tokens


def eventually(holds: Callable[[], Any], seconds: float = 10) -> None:
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.01)


def about(tokens: int) -> list[int]:
    """A little comes back while a test runs."""
    return list(range(tokens - 8, tokens + 1))


def connects(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


class Server:
    """A Redis with the module, on a port of its own."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.folder = folder
        self.client = redis.Redis(port=self.port, decode_responses=True)
        self.start()

    def start(self) -> None:
        command = [os.environ["REDIS_SERVER"], "--port", str(self.port), "--save", "", "--dir", str(self.folder)]
        self.process = subprocess.Popen(
            [*command, "--loadmodule", os.environ["RL_MODULE"]], stdout=subprocess.DEVNULL
        )
        eventually(self.answers)

    def answers(self) -> bool:
        with contextlib.suppress(redis.RedisError):
            return bool(self.client.ping())
        return False

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


class Upstream:
    """Answers as the `plan` says, and counts how many requests it works on."""

    def __init__(self) -> None:
        self.plan: dict[str, Any] = {}
        self.running = self.peak = self.calls = 0
        self.go = threading.Event()  # lets answers that wait go on
        self.app = Starlette(routes=[Route("/v1/chat/completions", self.answer, methods=["POST"])])

    async def answer(self, request: Request) -> Response:
        call = await request.json()
        plan = dict(self.plan)
        self.calls += 1
        if "thinks" in plan:
            self.running += 1
            while not self.go.is_set() and not await request.is_disconnected():
                await asyncio.sleep(0.01)
            self.running -= 1
        if "status" in plan:
            return JSONResponse({"error": "upstream"}, plan["status"])
        usage = {"total_tokens": plan.get("usage", 20)}
        if not call.get("stream"):
            answer = {"choices": [{"message": {"content": "Hi"}}]}
            return JSONResponse(answer if "silent" in plan else answer | {"usage": usage})
        assert call["stream_options"] == {"include_usage": True}
        return StreamingResponse(self.stream(plan, usage), media_type="text/event-stream")

    async def stream(self, plan: dict[str, Any], usage: dict[str, int]) -> AsyncIterator[str]:
        self.running += 1
        self.peak = max(self.peak, self.running)
        try:
            if plan.get("breaks") == 0:
                raise ConnectionError("the answer breaks off")
            for number in range(plan.get("parts", 3)):
                yield f"data: {json.dumps({'choices': [{'delta': {'content': f'{number} '}}]})}\n\n"
            while plan.get("waits") and not self.go.is_set():
                yield ": still here\n\n"
                await asyncio.sleep(0.01)
            yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n"
            yield "data: [DONE]\n\n"
        finally:
            self.running -= 1


@contextlib.contextmanager
def served(app: Starlette) -> Iterator[str]:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=2))
    thread = threading.Thread(target=server.run)
    thread.start()
    eventually(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


class World:
    """A proxy between its callers, an upstream and a Redis."""

    def __init__(self, server: Server, upstream: Upstream, upstream_url: str) -> None:
        self.server, self.upstream, self.upstream_url = server, upstream, upstream_url
        self.running = contextlib.ExitStack()
        self.limits = Limits()
        self.url = ""

    def proxy(self, timeout: float = 2, **limits: int) -> str:
        self.limits = Limits(**limits)
        url = f"redis://127.0.0.1:{self.server.port}"
        app = make(url, self.upstream_url, CALLERS, self.limits, timeout=timeout)
        self.url = self.running.enter_context(served(app))
        return self.url

    def process(self, timeout_ms: str = "2000", **limits: int) -> tuple[str, subprocess.Popen[bytes]]:
        """A proxy in a process of its own, as it is run in production."""
        self.limits = Limits(**limits)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        environment = {
            "PROXY_REDIS": f"redis://127.0.0.1:{self.server.port}",
            "PROXY_UPSTREAM": self.upstream_url,
            "PROXY_KEYS": " ".join(CALLERS),
            "PROXY_TIMEOUT_MS": timeout_ms,
            **{f"PROXY_{name.upper()}": str(value) for name, value in limits.items()},
        }
        command = [sys.executable, "-m", "uvicorn", "--factory", "proxy:app", "--port", str(port), "--log-level", "error"]
        process = subprocess.Popen(command, env=os.environ | environment, cwd=Path(__file__).parent)
        self.running.callback(process.wait)
        self.running.callback(process.kill)
        self.url = f"http://127.0.0.1:{port}"
        eventually(lambda: connects(port))
        return self.url, process

    def post(self, key: str = KEYS[0], url: str = "", **call: Any) -> httpx.Response:
        call = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 100, **call}
        headers = {"authorization": f"Bearer {key}"}
        return httpx.post(f"{url or self.url}/v1/chat/completions", json=call, headers=headers, timeout=20)

    def request(self) -> bytes:
        """A request as it goes over the wire."""
        body = json.dumps({"messages": [], "max_tokens": 100}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: proxy\r\nauthorization: Bearer {KEYS[0]}\r\n"
        return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body

    @contextlib.contextmanager
    def stream(self, **call: Any) -> Iterator[httpx.Response]:
        call = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 100, "stream": True, **call}
        headers = {"authorization": f"Bearer {KEYS[0]}"}
        address = f"{self.url}/v1/chat/completions"
        with httpx.stream("POST", address, json=call, headers=headers, timeout=20) as response:
            yield response

    def key(self, limit: str) -> str:
        return f"llm:{{{hashlib.sha256(KEYS[0].encode()).hexdigest()}}}:{limit}"

    def used(self, limit: str) -> int:
        """Units that a bucket lacks, or leases that are live, as the server sees it."""
        most = int(getattr(self.limits, limit))
        if limit == "streams":
            peek = ("RL.PEEK", self.key(limit), "LEASE", most, 1000, "nobody")
            return most - int(self.server.client.execute_command(*peek)[2])  # type: ignore[no-untyped-call]
        state = self.server.client.get(self.key(limit))
        if state is None:
            return 0
        level, period = (int(number) for number in str(state).split(":")[1:3])  # below 0 if it owes
        return most - level // period


    def nothing_is_used(self) -> bool:
        """A key may outlive its use, so ask until when something is used."""
        limits = self.limits
        policies: dict[str, tuple[str | int, ...]] = {
            "requests": ("TOKEN", limits.requests, limits.requests, 60_000),
            "tokens": ("TOKEN", limits.tokens, limits.tokens, 60_000),
            "streams": ("LEASE", limits.streams, 1000, "nobody"),
        }
        peeks = [("RL.PEEK", self.key(name), *policy) for name, policy in policies.items()]
        return all(self.server.client.execute_command(*peek)[4] == 0 for peek in peeks)  # type: ignore[no-untyped-call]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    server, upstream = Server(tmp_path), Upstream()
    try:
        with served(upstream.app) as url:
            world = World(server, upstream, url)
            try:
                yield world
            finally:
                upstream.go.set()
                world.running.close()
    finally:
        server.process.send_signal(signal.SIGCONT)
        server.stop()


def test_an_answer_is_passed_on_and_charged_with_what_it_used(world: World) -> None:
    world.proxy(tokens=200)
    world.upstream.plan = {"usage": 30}
    answer = world.post()
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"] == "Hi"
    assert int(answer.headers["x-ratelimit-remaining-requests"]) == 59
    eventually(lambda: world.used("streams") == 0)
    assert world.used("requests") == 1
    assert world.used("tokens") in about(30)


def test_a_stream_is_passed_on_and_settled_when_it_ends(world: World) -> None:
    world.proxy(tokens=200)
    world.upstream.plan = {"usage": 30, "parts": 4, "waits": True}
    with world.stream() as answer:
        lines = answer.iter_lines()
        assert "0 " in next(lines)
        assert world.used("streams") == 1
        assert world.used("tokens") > 100, "the estimate is charged while the answer runs"
        world.upstream.go.set()
        assert "data: [DONE]" in list(lines)
    eventually(lambda: world.used("streams") == 0)
    assert world.used("requests") == 1
    assert world.used("tokens") in about(30)


def test_usage_beyond_the_estimate_is_paid_for_by_the_next_requests(world: World) -> None:
    world.proxy(tokens=1000)
    world.upstream.plan = {"usage": 1500}
    assert world.post(stream=True).status_code == 200
    eventually(lambda: world.used("streams") == 0)
    assert world.used("tokens") in about(1500), "it owes 500"
    refused = world.post()
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "tokens"
    # 500 that are owed and an estimate of about 110, at 1000 a minute.
    assert 30 <= int(refused.headers["retry-after"]) <= 38
    assert world.upstream.calls == 1


@pytest.mark.parametrize(
    ("plan", "stream"),
    [({"status": 500}, False), ({"status": 500}, True), ({"status": 429}, True), ({"breaks": 0}, True)],
)
def test_a_failed_upstream_call_costs_nothing(world: World, plan: dict[str, int], stream: bool) -> None:
    world.proxy(requests=3, tokens=200)  # 20 s until a request comes back by itself
    world.upstream.plan = plan
    answer = world.post(stream=stream)
    assert answer.status_code == plan.get("status", 502)
    eventually(world.nothing_is_used)


def test_an_upstream_that_is_gone_costs_nothing(world: World) -> None:
    world.upstream_url = "http://127.0.0.1:1"
    world.proxy(requests=3, tokens=200)
    assert world.post().status_code == 502
    eventually(world.nothing_is_used)


def test_twenty_streams_at_limit_five_never_exceed_five(world: World) -> None:
    world.proxy(streams=5, tokens=100_000)
    world.upstream.plan = {"waits": True}
    answers: list[int] = []

    def call() -> None:
        with world.stream() as answer:
            answers.append(answer.status_code)
            answer.read()

    for _ in range(2):  # places that were given back are as good as new ones
        answers.clear()
        world.upstream.go.clear()
        callers = [threading.Thread(target=call) for _ in range(20)]
        for caller in callers:
            caller.start()
        eventually(lambda: len(answers) == 20)
        assert sorted(answers) == [200] * 5 + [429] * 15
        world.upstream.go.set()
        for caller in callers:
            caller.join()
        eventually(lambda: world.used("streams") == 0)
    assert world.upstream.peak == 5


def test_a_caller_that_hangs_up_pays_for_what_it_got_and_leaves_its_place(world: World) -> None:
    world.proxy(tokens=200, streams=1)
    world.upstream.plan = {"parts": 70, "waits": True}
    with world.stream() as answer:
        lines = answer.iter_lines()
        while "69 " not in next(lines):
            pass
        prompt = int(answer.request.headers["content-length"]) // 4
    eventually(lambda: world.used("streams") == 0)
    eventually(lambda: world.upstream.running == 0)
    assert world.used("tokens") in about(prompt + 70)


def test_an_upstream_that_thinks_for_long_keeps_its_place(world: World) -> None:
    world.proxy(streams=1, lease_ms=1000, tokens=200)
    world.upstream.plan = {"thinks": True, "usage": 30}
    with ThreadPoolExecutor() as callers:
        first = callers.submit(world.post)
        eventually(lambda: world.upstream.running == 1)
        until = time.monotonic() + 2
        while time.monotonic() < until:
            assert world.post().status_code == 429
        world.upstream.go.set()
        assert first.result().json()["usage"] == {"total_tokens": 30}
    eventually(lambda: world.used("streams") == 0)
    assert (world.upstream.calls, world.used("tokens")) in [(1, tokens) for tokens in about(30)]


def test_a_caller_that_hangs_up_while_the_upstream_thinks_leaves_its_place(world: World) -> None:
    world.proxy(streams=1)
    world.upstream.plan = {"thinks": True}
    with socket.create_connection(("127.0.0.1", httpx.URL(world.url).port)) as caller:
        caller.sendall(world.request())
        eventually(lambda: world.upstream.running == 1)
    eventually(lambda: world.used("streams") == 0)
    eventually(lambda: world.upstream.running == 0)


def test_a_request_that_lost_its_place_before_it_was_answered_is_504(world: World) -> None:
    world.proxy(streams=1, lease_ms=300)
    world.upstream.plan = {"thinks": True}
    with ThreadPoolExecutor() as callers:
        first = callers.submit(world.post)
        eventually(lambda: world.upstream.running == 1)
        world.server.client.delete(world.key("streams"))
        assert first.result().status_code == 504
    eventually(lambda: world.upstream.running == 0)


def test_an_answer_that_says_no_usage_costs_its_estimate(world: World) -> None:
    world.proxy(tokens=200)
    world.upstream.plan = {"silent": True}
    prompt = int(world.post().request.headers["content-length"]) // 4
    eventually(lambda: world.used("streams") == 0)
    assert world.used("tokens") in about(prompt + 100)


@pytest.mark.parametrize(
    ("call", "estimate"),
    [
        ({"max_tokens": None}, 1000),
        ({"max_tokens": 7, "max_completion_tokens": 90}, 90),
        ({"max_tokens": 90, "max_completion_tokens": 1}, 90),
        ({"max_tokens": 9, "n": 10}, 90),
    ],
)
def test_the_estimate_is_the_most_that_the_upstream_may_make_of_it(
    world: World, call: dict[str, Any], estimate: int
) -> None:
    world.proxy(tokens=2000)
    world.upstream.plan = {"waits": True}
    with world.stream(**call) as answer:
        assert world.used("tokens") in range(estimate, estimate + 60), "the prompt comes on top"
        world.upstream.go.set()
        answer.read()


def test_what_comes_back_by_itself_is_not_given_back_too(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limiter, "REFUND_WITHIN", 0.0)  # as if the minute were over
    world.proxy(tokens=200, requests=3)
    world.upstream.plan = {"status": 500}
    prompt = int(world.post().request.headers["content-length"]) // 4
    eventually(lambda: world.used("streams") == 0)
    assert world.used("requests") == 1
    assert world.used("tokens") in about(prompt + 100)


def test_fifty_callers_at_limit_three_over_two_processes(world: World) -> None:
    urls = [world.process(requests=3)[0], world.process(requests=3)[0]]
    with ThreadPoolExecutor(50) as callers:
        answers = list(callers.map(lambda number: world.post(url=urls[number % 2]).status_code, range(50)))
    assert sorted(answers) == [200] * 3 + [429] * 47


def test_a_proxy_that_is_killed_leaves_the_estimate_charged_and_its_place_for_a_while(world: World) -> None:
    _, process = world.process(streams=1, tokens=200, lease_ms=1500)
    world.upstream.plan = {"waits": True}
    with pytest.raises(httpx.HTTPError), world.stream() as answer:
        prompt = int(answer.request.headers["content-length"]) // 4
        process.kill()
        assert world.used("streams") == 1
        answer.read()
    eventually(lambda: world.used("streams") == 0)
    assert world.used("tokens") in about(prompt + 100)


def test_a_stream_ends_well_where_redis_is_gone_at_its_end(world: World) -> None:
    world.proxy(timeout=0.25)
    world.upstream.plan = {"waits": True}
    with world.stream() as answer:
        world.server.stop()
        world.upstream.go.set()
        assert "data: [DONE]" in list(answer.iter_lines())


def test_requests_are_limited_each_caller_for_itself_over_two_proxies(world: World) -> None:
    urls = [world.proxy(requests=3), world.proxy(requests=3)]
    answers = [world.post(url=urls[number % 2]) for number in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert answers[3].json()["error"]["code"] == "requests"
    assert 1 <= int(answers[3].headers["retry-after"]) <= 20
    assert world.post(KEYS[1]).status_code == 200


def test_an_estimate_above_a_minute_never_fits_and_costs_nothing(world: World) -> None:
    world.proxy(tokens=100)
    answer = world.post(max_tokens=101)
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "too_large")
    assert "retry-after" not in answer.headers
    assert (world.server.client.dbsize(), world.upstream.calls) == (0, 0)


def test_a_long_stream_keeps_its_place(world: World) -> None:
    world.proxy(streams=1, lease_ms=1000)
    world.upstream.plan = {"waits": True}
    with world.stream() as answer:
        until = time.monotonic() + 2
        while time.monotonic() < until:
            assert world.post().status_code == 429
        world.upstream.go.set()
        assert "data: [DONE]" in list(answer.iter_lines())


def test_a_stream_that_lost_its_place_breaks_off(world: World) -> None:
    world.proxy(streams=1, lease_ms=300)
    world.upstream.plan = {"waits": True}
    with world.stream() as answer, pytest.raises(httpx.RemoteProtocolError):
        world.server.client.delete(world.key("streams"))
        answer.read()
    eventually(lambda: world.upstream.running == 0)


def test_a_redis_that_freezes_is_killed_and_comes_back(world: World) -> None:
    url = world.process(timeout_ms="")[0]  # as the page says: a quarter of a second, and one for the release
    eventually(lambda: world.post(url=url).status_code == 200)
    world.server.process.send_signal(signal.SIGSTOP)
    frozen_at = time.monotonic()
    assert world.post().status_code == 503
    assert 0.25 <= time.monotonic() - frozen_at < 3
    world.server.process.send_signal(signal.SIGCONT)
    eventually(lambda: world.post().status_code == 200)
    world.server.stop()
    assert world.post().status_code == 503
    world.server.start()
    eventually(lambda: world.post().status_code == 200)


def test_an_error_of_redis_is_503_and_nothing_is_passed_on(world: World) -> None:
    world.proxy()
    world.server.client.hset(world.key("tokens"), "field", "value")
    assert world.post().status_code == 503
    assert world.upstream.calls == 0


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", "{", "[" * 100_000, "\xff", '{"a": NaN}', '{"user": "\\ud800"}', '{"a": "' + "b" * 2**23 + '"}'),
        *('{"max_tokens": 0}', '{"max_tokens": true}', '{"max_tokens": "9"}', '{"n": 0}', '{"n": 1e9}'),
    ],
    ids=lambda content: content[:20],
)
def test_a_request_that_is_none_is_400(world: World, content: str) -> None:
    world.proxy()
    headers = {"authorization": f"Bearer {KEYS[0]}"}
    answer = httpx.post(f"{world.url}/v1/chat/completions", content=content.encode("latin-1"), headers=headers)
    assert (answer.status_code, world.server.client.dbsize()) == (400, 0)


def test_an_unknown_key_is_401(world: World) -> None:
    world.proxy()
    assert world.post("nobody").status_code == 401
