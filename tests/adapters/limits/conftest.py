"""Servers with the module for the tests beside this file, and calls that are the same with and without await.

REDIS_SERVER and RL_MODULE name the server's command and the module.
"""

import asyncio
import inspect
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

TOP = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(TOP / "examples/adapters/limits"), str(TOP / "tests")]

from limits.storage import storage_from_string  # noqa: E402
from limits.strategies import STRATEGIES  # noqa: E402
from limits.aio.strategies import STRATEGIES as ASYNC_STRATEGIES  # noqa: E402

import limits_redis_rl  # noqa: E402, F401
from wire import free_port  # type: ignore[import-untyped]  # noqa: E402

NAMES = ["fixed-window", "sliding-window-counter", "moving-window", "token-bucket"]


def wait_for(what: str, condition: Callable[[], Any]) -> None:
    until = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < until, f"waited 20 s for: {what}"
        time.sleep(0.02)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What test_peers counted."""
    for report in terminalreporter.getreports("passed"):
        for _, line in report.user_properties:
            terminalreporter.write_line(str(line))


class Server:
    def __init__(self, folder: Path, *options: str, module: bool = True) -> None:
        self.port = free_port()
        self.socket = folder / "socket"
        self.command = [
            *shlex.split(os.environ["REDIS_SERVER"]),
            *("--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket", str(self.socket)),
            *("--save", "", "--appendonly", "no", "--dir", str(folder), "--logfile", "log"),
            *(("--loadmodule", os.environ["RL_MODULE"]) if module else ()),
            *options,
        ]
        self.client = redis.Redis(port=self.port, decode_responses=True)
        self.start()

    def uri(self, scheme: str, options: str = "?socket_timeout=10&socket_connect_timeout=10") -> str:
        """The time-outs are longer than the storage's own, as a machine that tests may be slow."""
        return f"{scheme}://127.0.0.1:{self.port}{options}"

    def answers(self) -> bool:
        assert self.process.poll() is None, "the server did not start"
        try:
            return bool(self.client.ping())
        except redis.ConnectionError:
            return False

    def start(self) -> None:
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL)
        wait_for("an answer of the server", self.answers)

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    yield server
    server.kill()


@pytest.fixture
def server(shared_server: Server) -> Server:
    """One without keys."""
    shared_server.client.flushall()
    return shared_server


@pytest.fixture
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Server]]:
    """Starts servers of the test's own, to freeze and to kill."""
    servers: list[Server] = []

    def start(*options: str, module: bool = True) -> Server:
        servers.append(Server(tmp_path_factory.mktemp("own"), *options, module=module))
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


class Blocking:
    """An object whose coroutines are run to their end."""

    def __init__(self, target: Any, runner: asyncio.Runner) -> None:
        self.target, self.runner = target, runner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.target, name)
        if not inspect.iscoroutinefunction(value):
            return value
        return lambda *words, **options: self.runner.run(value(*words, **options))


class Library:
    """limits, or limits.aio, called in one way."""

    def __init__(self, kind: str, runner: asyncio.Runner) -> None:
        self.kind, self.runner = kind, runner
        self.prefix = "" if kind == "sync" else "async+"
        self.storages: list[Any] = []

    def storage(self, server: Server, scheme: str = "redis-rl", **options: Any) -> Any:
        return self.storage_at(server.uri(self.prefix + scheme), **options)

    def storage_at(self, uri: str, **options: Any) -> Any:
        storage = storage_from_string(uri, **options)
        self.storages.append(storage)
        return storage if self.kind == "sync" else Blocking(storage, self.runner)

    def strategy(self, name_or_class: Any, storage: Any) -> Any:
        make = (STRATEGIES if self.kind == "sync" else ASYNC_STRATEGIES).get(name_or_class, name_or_class)
        return make(storage) if self.kind == "sync" else Blocking(make(storage.target), self.runner)

    async def close(self) -> None:
        for storage in self.storages:
            if "storage" in vars(storage) and "redis" in type(storage.storage).__module__:
                await storage.storage.aclose()


@pytest.fixture(params=["sync", "async"])
def library(request: pytest.FixtureRequest) -> Iterator[Library]:
    with asyncio.Runner() as runner:
        library = Library(request.param, runner)
        yield library
        if request.param == "async":
            runner.run(library.close())


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def limiter(library: Library, name: str, server: Server) -> Any:
    return library.strategy(name, library.storage(server))
