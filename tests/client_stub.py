"""A real HTTP server on loopback that records what the client sends and plays the answers a test has laid out.

The suites of the SDK, the command line and the old client use it through the fixtures below. Loaded as a plugin by
``tests/conftest.py``.
"""

from __future__ import annotations

import json
import re
import socket
import threading
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from click.testing import CliRunner, Result

import paddleflow
from paddleflow.cli.main import root
from paddleflow.sdk.client import PaddleFlow

API = "/api/paddleflow/v1"


@dataclass(frozen=True)
class Seen:
    """A request as it arrived; `path` without the API's prefix."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any
    port: int  #: of the client, to tell connections apart

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Seen) and self.line == other.line

    @property
    def line(self) -> tuple[str, str, dict[str, str], Any]:
        return self.method, self.path, self.query, self.body


@dataclass
class Answer:
    """What to say. `chunks` makes it a stream: bytes are sent, an event is waited for."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    drop: bool = False  #: close the connection instead of answering
    hang_up: bool = False  #: answer, then close without having said so
    cut: bool = False  #: end the stream without its last chunk
    chunks: Sequence[bytes | threading.Event] | None = None
    wait: threading.Event | None = None  #: answer only when this is set


class Stub:
    """The server. The last answer laid out for a route is given again and again."""

    def __init__(self) -> None:
        self.requests: list[Seen] = []
        self._answers: dict[tuple[str, str], deque[Answer]] = defaultdict(deque)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def on(self, route: str, *answers: Any) -> None:
        """Lays out answers for a route such as ``GET /job/*``: an Answer, or the body of a plain one."""
        method, _, path = route.partition(" ")
        given = [answer if isinstance(answer, Answer) else Answer(answer) for answer in answers]
        self._answers[(method, path)].extend(given)

    def refuse(self, route: str, status: int, code: str, message: str, **more: Any) -> None:
        body = {"requestID": "r-1", "code": code, "message": message, **more}
        self.on(route, Answer(body, status))

    def lines(self) -> list[tuple[str, str, dict[str, str], Any]]:
        """(method, path, query, body) of every request."""
        return [seen.line for seen in self.requests]

    def next_answer(self, method: str, path: str) -> Answer:
        queue = self._answers.get((method, path)) or self._answers.get((method, re.sub("/job/[^/]+", "/job/*", path)))
        if not queue:
            return Answer({"requestID": "r-0", "code": "PathNotFound", "message": f"{method} {path}"}, 404)
        return queue.popleft() if len(queue) > 1 else queue[0]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except ConnectionError:
                    self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                length = int(self.headers.get("Content-Length") or 0)
                raw = self.rfile.read(length)
                path = parts.path.removeprefix(API)
                headers = {key.lower(): value for key, value in self.headers.items()}
                query = dict(parse_qsl(parts.query))
                binary = self.headers.get("Content-Type") == "application/octet-stream"
                body = raw if binary else json.loads(raw) if raw else None
                stub.requests.append(Seen(self.command, path, query, headers, body, self.client_address[1]))
                play(self, stub.next_answer(self.command, path))

            def __getattr__(self, name: str) -> Any:
                if name.startswith("do_"):
                    return self.do_GET
                raise AttributeError(name)

        return Handler


def play(handler: BaseHTTPRequestHandler, answer: Answer) -> None:
    if answer.wait is not None:
        answer.wait.wait(30)
    if answer.drop:
        handler.connection.shutdown(socket.SHUT_RDWR)
        handler.close_connection = True
        return
    handler.send_response(answer.status)
    for key, value in answer.headers.items():
        handler.send_header(key, value)
    if answer.chunks is None:
        body = answer.body if isinstance(answer.body, bytes) else b"" if answer.body is None else _json(answer.body)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
        handler.close_connection = answer.hang_up or handler.close_connection
        return
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    for chunk in answer.chunks:
        if isinstance(chunk, threading.Event):
            chunk.wait(30)
        else:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
    if not answer.cut:
        handler.wfile.write(b"0\r\n\r\n")
    handler.close_connection = True


def _json(body: object) -> bytes:
    return json.dumps(body).encode()


class Shell:
    """Calls the command line against the stub."""

    def __init__(self, stub: Stub) -> None:
        self.stub = stub

    def __call__(self, *words: str, code: int = 0, input: str | None = None) -> Result:
        result = CliRunner().invoke(root, ["--server", self.stub.url, *words], input=input, prog_name="paddleflow")
        assert result.exit_code == code, result.output
        return result


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty configuration folder, and no word about servers in the environment."""
    folder = tmp_path / "home"
    monkeypatch.setenv("PADDLEFLOW_HOME", str(folder))
    for name in ("SERVER", "TOKEN", "OUTPUT", "PF_CONFIG"):
        monkeypatch.delenv(f"PADDLEFLOW_{name}", raising=False)
    return folder


@pytest.fixture
def stub(home: Path) -> Iterator[Stub]:
    """A server that plays answers."""
    stub = Stub()
    try:
        yield stub
    finally:
        stub.close()


@pytest.fixture
def shell(stub: Stub) -> Shell:
    """The command line, speaking to the stub."""
    return Shell(stub)


@pytest.fixture
def pf(stub: Stub) -> PaddleFlow:
    """The typed client, speaking to the stub."""
    return paddleflow.connect(stub.url, token="t")
