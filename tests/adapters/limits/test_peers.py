"""The tests of limits and of Flask-Limiter, from their source packages, on this storage."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest

from conftest import TOP, Server

IGNORED = shutil.ignore_patterns("benchmarks", "test_views.py")  # without Redis, with more to install
# What they expect otherwise, and why.
LEFT_OUT = {
    "test_moving_window_huge_cost": "a moving window of a million: ours takes 10,000, and says so",
    "test_sliding_window_counter_previous_window": "the reset is when one more is admitted, or nothing is used",
}
LEFT_OUT_WITH_OUR_STRATEGIES = LEFT_OUT | {
    "test_sliding_window_counter": "limits sees a reset at the window's end, the server a moment later",
    "test_sliding_window_counter_stats": "as above",
}


SYNC, ASYNC = ["tests", "--ignore", "tests/aio"], ["tests/aio"]


@pytest.mark.parametrize(
    "package, part, strategies, left_out",
    [
        ("limits", SYNC, "", LEFT_OUT),
        ("limits", ASYNC, "", LEFT_OUT),
        ("limits", SYNC, "ours", LEFT_OUT_WITH_OUR_STRATEGIES),
        ("limits", ASYNC, "ours", LEFT_OUT_WITH_OUR_STRATEGIES),
        ("flask-limiter", ["tests"], "", {}),
    ],
)
def test_peer(
    package: str,
    part: list[str],
    strategies: str,
    left_out: dict[str, str],
    start: Callable[..., Server],
    tmp_path: Path,
    record_property: Callable[[str, str], None],
) -> None:
    server = start()
    source = TOP / ".cache/adapters/python/sources" / f"{package.replace('-', '_')}-{version(package)}"
    shutil.copytree(source / "tests", tmp_path / "tests", ignore=IGNORED)
    for file in tmp_path.rglob("*.py"):  # their server's ports, which here would not be free
        text = file.read_text().replace("46379", str(server.port)).replace("7379", str(server.port))
        file.write_text(text.replace("/tmp/limits.redis.sock", str(server.socket)))
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "--quiet", "--tb=short", "--asyncio-mode=auto", "-W", "ignore"),
            *("-p", "no:cacheprovider", "-p", "peer_plugin", "--rootdir", str(tmp_path)),
            *part,
        ],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": f"{Path(__file__).parent}:{tmp_path}",
            "RL_STRATEGIES": strategies,
            "RL_LEFT_OUT": " ".join(left_out),
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    what = f"{package} {version(package)}, {' '.join(part)}" + (", with our strategies" if strategies else "")
    record_property("peer", f"{what}: {done.stdout.splitlines()[-1]}; left out: {', '.join(left_out) or 'none'}")
