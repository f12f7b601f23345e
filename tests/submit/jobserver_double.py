"""A job server that says what a test wants, over real HTTP: Ray's endpoints, authentication and chunked logs."""

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Double:
    """Serves until closed. `answers` overrides a path with (status, body); `seen` has every request."""

    def __init__(self, *, token: str | None = None, tls: tuple[str, str] | None = None, ray: str = "2.60.0"):
        self.token, self.ray, self.python = token, ray, "3.11.9"
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.seen: list[tuple[str, str, dict[str, str], bytes]] = []
        self.packages: dict[str, bytes] = {}
        self.jobs: dict[str, dict[str, Any]] = {}
        self.log: list[bytes] = []
        self.cut_log = False
        double = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def serve(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                double.seen.append((self.command, self.path, dict(self.headers), body))
                given = self.headers.get("Authorization") or self.headers.get("X-Ray-Authorization")
                if double.token is not None and not self.path.startswith("/api/version") and given is None:
                    return self.reply(401, b"Unauthorized: Missing authentication token")
                if double.token is not None and given not in (None, f"Bearer {double.token}"):
                    return self.reply(403, b"Forbidden: Invalid authentication token")
                path = self.path.partition("?")[0]
                if path in double.answers:
                    return self.reply(*double.answers[path])
                if path.startswith("/api/v0/logs/"):
                    return self.chunks()
                return self.reply(*double.answer(self.command, path, body))

            do_GET = do_POST = do_PUT = serve

            def reply(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def chunks(self) -> None:
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for part in double.log:
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                if not double.cut_log:
                    self.wfile.write(b"0\r\n\r\n")
                self.close_connection = True

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        scheme = "https" if tls is not None else "http"
        self.url = f"{scheme}://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """What Ray's job server answers, as far as a client needs it."""
        if path == "/api/version":
            return 200, json.dumps({"version": "4", "ray_version": self.ray, "session_name": "session_x"}).encode()
        if path == "/api/v0/cluster_metadata":
            return 200, json.dumps({"data": {"rayVersion": self.ray, "pythonVersion": self.python}}).encode()
        if path.startswith("/api/packages/gcs/"):
            if method == "PUT":
                self.packages[path.rpartition("/")[2]] = body
                return 200, b""
            return (200 if path.rpartition("/")[2] in self.packages else 404), b""
        if path == "/api/jobs/" and method == "POST":
            wanted = json.loads(body)
            job = {"type": "SUBMISSION", "status": "SUCCEEDED", "start_time": 1000, "end_time": 2000} | wanted
            self.jobs[wanted["submission_id"]] = job | {"driver_exit_code": 0, "driver_node_id": "node"}
            return 200, json.dumps({"submission_id": wanted["submission_id"]}).encode()
        if path == "/api/jobs/":
            return 200, json.dumps(list(self.jobs.values())).encode()
        parts = path.split("/")
        if parts[:3] == ["", "api", "jobs"] and parts[3] in self.jobs:
            return 200, json.dumps({"stopped": True} if parts[-1] == "stop" else self.jobs[parts[3]]).encode()
        return 404, b"not found"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
