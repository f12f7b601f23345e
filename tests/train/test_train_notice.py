"""A spot notice of EC2, from a double of the instance metadata on loopback."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from raytrain_eks.train import notice
from raytrain_eks.train.notice import Metadata, Notice, drained_nodes, has_metadata

ACTION = {"action": "terminate", "time": "2026-01-02T03:04:05Z"}


class Double:
    """Instance metadata, version 2: no answer without a token that it gave; `action` is set by the test."""

    def __init__(self) -> None:
        self.action: object = None
        self.tokens: list[str] = []
        double = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *arguments: object) -> None:
                """Nothing is logged."""

            def answer(self, status: int, body: bytes = b"") -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_PUT(self) -> None:
                right = self.path == "/latest/api/token" and self.headers["X-aws-ec2-metadata-token-ttl-seconds"]
                if right:
                    double.tokens.append(f"token-{len(double.tokens)}")
                self.answer(200 if right else 400, double.tokens[-1].encode() if right else b"")

            def do_GET(self) -> None:
                if self.headers["X-aws-ec2-metadata-token"] not in double.tokens[-1:]:
                    self.answer(401)
                elif self.path != "/latest/meta-data/spot/instance-action" or double.action is None:
                    self.answer(404)
                else:
                    self.answer(200, json.dumps(double.action).encode())

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[Double]:
    found = Double()
    monkeypatch.setenv(notice.ENDPOINT, found.url)
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED", raising=False)
    yield found
    found.server.shutdown()
    found.server.server_close()


def test_the_metadata_tells_of_a_spot_notice_also_with_a_token_that_ran_out(double):
    service = Metadata()
    assert service.spot_action() is None
    double.action = ACTION
    assert service.spot_action() == ACTION
    assert len(double.tokens) == 1
    double.tokens.append("the service was started anew")
    assert service.spot_action() == ACTION
    assert len(double.tokens) == 3


def test_a_notice_that_comes_while_training_is_seen_once(double):
    said: list[str] = []
    told = threading.Event()
    seen = Notice(watch_machine=True, say=lambda text: (said.append(text), told.set()), every=0.01)
    assert not seen()
    double.action = ACTION
    assert told.wait(30)
    assert seen()
    seen.close()
    assert said == ["EC2 will terminate this machine at 2026-01-02T03:04:05Z"]


def test_metadata_that_never_answers_is_given_up(monkeypatch):
    monkeypatch.setenv(notice.ENDPOINT, "http://127.0.0.1:9")
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED", raising=False)
    seen = Notice(watch_machine=True, say=pytest.fail, every=0.001)
    seen._thread.join(30)
    assert not seen._thread.is_alive()
    assert not seen()


@pytest.mark.parametrize(
    ("vendor", "endpoint", "disabled", "expected"),
    [
        ("Amazon EC2\n", "", "", True),
        ("Amazon EC2\n", "", "true", False),
        ("QEMU\n", "", "", False),
        ("QEMU\n", "http://127.0.0.1:1", "", True),
        (None, "", "", False),
    ],
)
def test_only_a_machine_of_ec2_is_asked(tmp_path, monkeypatch, vendor, endpoint, disabled, expected):
    monkeypatch.setattr(notice, "VENDOR", tmp_path / "sys_vendor")
    if vendor is not None:
        notice.VENDOR.write_text(vendor)
    monkeypatch.setenv(notice.ENDPOINT, endpoint)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", disabled)
    assert has_metadata() is expected


def test_outside_of_ray_train_nothing_is_drained():
    assert drained_nodes() == []
