"""The applications of the examples: 200, 429 and headers, and what they do when nobody can judge."""

import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import Any

import flask_app
import limits_redis_rl
import pytest
import slowapi_app
import starlette_app
from limits import parse
from starlette.testclient import TestClient

from conftest import NAMES, Server, wait_for


class Flask:
    """A Flask application, asked as one of Starlette is."""

    def __init__(self, uri: str, **options: Any) -> None:
        self.client = flask_app.create_app(uri, **options).test_client()

    def get(self) -> tuple[int, Any]:
        response = self.client.get("/")
        return response.status_code, response.headers


class SlowAPI:
    def __init__(self, uri: str, **options: Any) -> None:
        app = slowapi_app.create_app(uri, **options)
        self.client = TestClient(app, raise_server_exceptions=False)

    def get(self) -> tuple[int, Any]:
        response = self.client.get("/")
        return response.status_code, response.headers


def seconds(retry_after: str) -> float:
    if retry_after.isdigit():
        return float(retry_after)
    return parsedate_to_datetime(retry_after).timestamp() - time.time()


@pytest.mark.parametrize("application", [Flask, SlowAPI])
@pytest.mark.parametrize("strategy, wait", [*zip(NAMES, [60, 120, 60, 20], strict=True)])
def test_limits_with_each_strategy(server: Server, application: Any, strategy: str, wait: int) -> None:
    app = application(server.uri("redis-rl"), strategy=strategy)
    for remaining in ("2", "1", "0"):
        status, headers = app.get()
        assert (status, headers["X-RateLimit-Limit"], headers["X-RateLimit-Remaining"]) == (200, "3", remaining)
    status, headers = app.get()
    assert status == 429
    assert headers["X-RateLimit-Remaining"] == "0"
    assert 0 <= seconds(headers["Retry-After"]) <= wait + 1
    assert float(headers["X-RateLimit-Reset"]) <= time.time() + wait + 1
    assert len(server.client.keys()) == 1


def test_starlette(server: Server) -> None:
    with TestClient(starlette_app.create_app(server.uri("async+redis-rl"))) as client:
        assert [client.get("/").status_code for _ in range(3)] == [200] * 3
        refused = client.get("/")
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "20")


def test_starlette_tells_the_wait_of_the_refusal(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where the next unit comes back before the answer is written: then the wait for all would be 40 s."""
    call = limits_redis_rl.AsyncRedisRLStorage.call

    async def call_and_wait(self: limits_redis_rl.AsyncRedisRLStorage, command: limits_redis_rl.Command) -> Any:
        reply = await call(self, command)
        if not reply[0]:
            server.client.execute_command("RL.TOKEN", command[1], 3, 3, 60000, "REFUND", 1)
        return reply

    monkeypatch.setattr(limits_redis_rl.AsyncRedisRLStorage, "call", call_and_wait)
    with TestClient(starlette_app.create_app(server.uri("async+redis-rl"))) as client:
        answers = [client.get("/") for _ in range(4)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert 10 < int(answers[3].headers["Retry-After"]) <= 20


def test_starlette_tells_no_wait_where_nobody_is_admitted(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(starlette_app, "parse", lambda _: parse("0/minute"))
    with TestClient(starlette_app.create_app(server.uri("async+redis-rl"))) as client:
        refused = client.get("/")
    assert (refused.status_code, refused.headers.get("Retry-After")) == (429, None)


@pytest.mark.parametrize("application", [Flask, SlowAPI])
def test_the_wait_that_is_told_is_long_enough(server: Server, application: Any) -> None:
    """A bucket's wait is no whole number of seconds."""
    app = application(server.uri("redis-rl"))
    for _ in range(4):
        status, headers = app.get()
    assert status == 429
    (key,) = server.client.keys()
    needed_ms = server.client.execute_command("RL.PEEK", key, "TOKEN", 3, 3, 60000)[3]
    assert 19_000 < needed_ms <= seconds(headers["Retry-After"]) * 1000 + 5


@pytest.mark.parametrize("application", [Flask, SlowAPI])
def test_an_application_that_lets_errors_through_fails(start: Callable[..., Server], application: Any) -> None:
    server = start()
    app = application(server.uri("redis-rl"))
    assert app.get()[0] == 200
    server.kill()
    assert app.get()[0] == 500
    server.start()
    assert app.get()[0] == 200


def test_flask_that_swallows_errors_lets_pass(start: Callable[..., Server]) -> None:
    server = start()
    app = Flask(server.uri("redis-rl", "?socket_timeout=1"), swallow_errors=True)
    assert [app.get()[0] for _ in range(4)] == [200, 200, 200, 429]
    server.freeze()
    assert app.get()[0] == 200
    server.thaw()
    wait_for("a refusal", lambda: app.get()[0] == 429)
    server.kill()
    assert [app.get()[0] for _ in range(4)] == [200] * 4


def test_slowapi_that_swallows_errors_fails_all_the_same(start: Callable[..., Server]) -> None:
    """On each storage, as it then asks for a state that it has not set. So the page says: don't."""
    server = start()
    app = SlowAPI(server.uri("redis-rl"), swallow_errors=True)
    assert app.get()[0] == 200
    server.kill()
    assert app.get()[0] == 500


@pytest.mark.parametrize("strategy", NAMES)
@pytest.mark.parametrize("application", [Flask, SlowAPI])
def test_an_application_falls_back_to_memory_and_returns(
    start: Callable[..., Server], application: Any, strategy: str
) -> None:
    server = start()
    app = application(server.uri("redis-rl"), strategy=strategy, in_memory_fallback_enabled=True)
    assert app.get()[0] == 200
    server.kill()
    assert [app.get()[0] for _ in range(4)] == [200, 200, 200, 429]
    server.start()
    wait_for("the server's limit again", lambda: app.get()[0] == 200 and server.client.keys())
    assert [app.get()[0] for _ in range(3)] == [200, 200, 429]


def test_starlette_answers_503(start: Callable[..., Server]) -> None:
    server = start()
    with TestClient(starlette_app.create_app(server.uri("async+redis-rl", "?socket_timeout=1"))) as client:
        assert client.get("/").status_code == 200
        server.freeze()
        assert client.get("/").status_code == 503
        server.thaw()
        wait_for("an answer", lambda: client.get("/").status_code != 503)
        server.kill()
        assert client.get("/").status_code == 503
        server.start()
        assert client.get("/").status_code == 200
