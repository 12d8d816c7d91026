"""What the scripts below this folder use to talk to a server without a client library."""

import socket


def free_port():
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Wire:
    """A connection that shows replies as they come, for what a client library would hide."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=5)
        self.file = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.socket.close()

    def call(self, *words):
        parts = [f"*{len(words)}\r\n".encode()]
        for word in words:
            word = str(word).encode()
            parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
        self.socket.sendall(b"".join(parts))
        return self.reply()

    def reply(self):
        line = self.file.readline()
        if not line:
            raise ConnectionError("closed without a reply")
        kind, rest = line[:1], line[1:].strip()
        if kind in b"$=" and rest != b"-1":
            return line + self.file.read(int(rest) + 2)
        if kind in b"*~>%" and rest != b"-1":
            return line + b"".join(self.reply() for _ in range(int(rest) * (2 if kind == b"%" else 1)))
        return line
