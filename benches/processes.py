"""What the scripts below this folder share: processes of their own, and the processor time of these."""

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from wire import Wire, free_port  # noqa: E402


def say(text):
    """Progress. Tables go to standard output."""
    print(text, file=sys.stderr, flush=True)


def wait_until(what, holds, seconds=60):
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            raise SystemExit(f"waited {seconds} s in vain for {what}")
        time.sleep(0.02)


def table(columns, rows, texts=1):
    """In Markdown; columns after the first `texts` hold numbers."""
    print("| " + " | ".join(columns) + " |")
    print("|" + "---|" * texts + "--:|" * (len(columns) - texts))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def cpu_seconds(processes):
    """Processor time so far. The clocks are those that clock_getcpuclockid(3) names."""
    return sum(time.clock_gettime((~process.pid << 3) | 2) for process in processes)


class Processes:
    """Started in a temporary folder, and ended together."""

    def __init__(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name)
        self.running = []

    def __enter__(self):
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
        return self

    def __exit__(self, *_):
        self.end(self.running)
        self.temporary.cleanup()

    def start(self, name, *command, **environment):
        with open(self.folder / f"{name}.log", "w") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=os.environ | environment,
            )
        self.running.append(process)
        return process

    def end(self, processes):
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.running = [process for process in self.running if process not in processes]

    def log(self, name):
        return (self.folder / f"{name}.log").read_text()


class Server:
    """A Redis with the module on a free port of 127.0.0.1, without persistence unless asked for."""

    count = 0

    def __init__(self, processes, binary, module, *options):
        Server.count += 1
        self.port = free_port()
        name = f"redis-{Server.count}"
        (processes.folder / name).mkdir()
        self.process = processes.start(
            name,
            *(*shlex.split(binary), "--port", str(self.port), "--bind", "127.0.0.1"),
            *("--dir", name, "--save", "", "--loadmodule", module, *options),
        )
        wait_until(name, self.answers)
        self.wire = Wire(self.port)
        self.wire.socket.settimeout(60)

    def answers(self):
        if self.process.poll() is not None:
            raise SystemExit("a server did not start")
        try:
            with Wire(self.port) as wire:
                return wire.call("PING") == b"+PONG\r\n"
        except OSError:
            return False

    def call(self, *words):
        reply = self.wire.call(*words)
        if reply.startswith(b"-"):
            raise SystemExit(f"{words}: {reply.decode().strip()}")
        return reply

    def info(self, section, name):
        """A figure of INFO, as text."""
        lines = self.call("INFO", section).decode().split("\r\n")
        return next(line.partition(":")[2] for line in lines if line.startswith(f"{name}:"))
