"""An S3 server for tests: moto in a process of its own, and a proxy in front of it that injects faults."""

import http.client
import random
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

Fault = str
"""`503`, `SlowDown`, `reset` (before anything), `truncate` (half of the body), `lost` (done, without an answer)."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Moto:
    """`moto_server` on loopback."""

    def __init__(self) -> None:
        self.port = free_port()
        arguments = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        self.process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 600
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                if time.monotonic() > end or self.process.poll() is not None:
                    raise
                time.sleep(0.05)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


@dataclass
class Faults:
    """Which requests fail, and how."""

    choose: Callable[[str, str], Fault | None] = lambda method, path: None
    """Method and path (with query) of a request -> its fault."""
    injected: list[tuple[str, str, Fault]] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)

    def often(self, seed: int, probability: float, kinds: list[Fault]) -> None:
        """Each request fails with a probability."""
        dice = random.Random(seed)
        lock = threading.Lock()

        def choose(method: str, path: str) -> Fault | None:
            with lock:
                return dice.choice(kinds) if dice.random() < probability else None

        self.choose = choose

    def never(self) -> None:
        self.choose = lambda method, path: None

    def always(self, kind: Fault = "503") -> None:
        self.choose = lambda method, path: kind


class Proxy:
    """Forwards to an S3 server, with faults."""

    def __init__(self, target: int) -> None:
        self.faults = Faults()
        faults = self.faults

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *arguments: object) -> None:
                """Nothing is logged."""

            def body(self) -> bytes:
                # botocore sends `Expect: 100-continue`; the base class has answered it by now.
                if "chunked" in self.headers.get("Transfer-Encoding", ""):
                    found = b""
                    while size := int(self.rfile.readline().split(b";")[0], 16):
                        found += self.rfile.read(size)
                        self.rfile.readline()
                    self.rfile.readline()
                    return found
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))

            def reset(self) -> None:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True
                self.connection.close()

            def forward(self) -> None:
                body = self.body()
                fault = faults.choose(self.command, self.path)
                faults.requests.append((self.command, self.path))
                if fault:
                    faults.injected.append((self.command, self.path, fault))
                if fault in ("503", "SlowDown"):
                    code = "ServiceUnavailable" if fault == "503" else "SlowDown"
                    self.answer(503, {}, f"<Error><Code>{code}</Code><Message>later</Message></Error>".encode())
                    return
                if fault == "reset":
                    self.reset()
                    return
                server = http.client.HTTPConnection("127.0.0.1", target, timeout=300)
                headers = {k: v for k, v in self.headers.items() if k.lower() not in ("expect", "transfer-encoding")}
                headers["Content-Length"] = str(len(body))
                server.request(self.command, self.path, body, headers)
                got = server.getresponse()
                content = got.read()
                server.close()
                if fault == "lost":
                    self.reset()
                    return
                self.answer(got.status, dict(got.getheaders()), content, cut=fault == "truncate")

            def answer(self, status: int, headers: dict[str, str], content: bytes, cut: bool = False) -> None:
                self.send_response_only(status)
                dropped = {"content-length", "transfer-encoding", "connection"}
                for name, value in headers.items():
                    if name.lower() not in dropped:
                        self.send_header(name, value)
                is_head = self.command == "HEAD"
                length = headers.get("Content-Length", "0") if is_head else str(len(content))
                self.send_header("Content-Length", length)
                self.end_headers()
                if not is_head:
                    self.wfile.write(content[: len(content) // 2] if cut else content)
                if cut:
                    self.wfile.flush()
                    self.reset()

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request: object, address: object) -> None:
                """A reset connection is what was wanted."""

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
