"""Every route with the worst documents that its limits let in: refused in few words, and the event loop goes on meanwhile.

What counts is the processor time that the loop's own thread spends in one step of a request, which is the same on a machine that is busy:
as long as it is short, nobody else's request waits for a hostile one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Coroutine, Generator, Iterator
from typing import Any

import pytest

from paddleflow.api.routing import Route
from paddleflow.settings import ServerSettings
from tests.api.client import Answer, Api

LONGEST = 0.2  #: seconds of the loop's thread in one step of a request
LARGE = ServerSettings().max_body - 1000  #: bytes
BULK = 4 * 2**20  #: bytes, of routes that take much; 16 MiB take as long for each byte
MOST_ANSWER = 300_000  #: bytes that a refusal has: a hundred faults


@pytest.fixture
def database_url() -> str:
    """Nothing here depends on the engine."""
    return ""


class Measured:
    """A request, and the most processor time that one step of it takes from the thread of the loop."""

    def __init__(self, request: Coroutine[Any, Any, Answer]) -> None:
        self._request = request
        self.longest = 0.0

    def __await__(self) -> Generator[Any, Any, Answer]:
        result, error = None, None
        while True:
            began = time.thread_time()
            try:
                waited = self._request.send(result) if error is None else self._request.throw(error)
            except StopIteration as stop:
                answer: Answer = stop.value
                return answer
            finally:
                self.longest = max(self.longest, time.thread_time() - began)
            try:
                result, error = (yield waited), None
            except BaseException as raised:  # whatever was waited for raised it
                result, error = None, raised


def documents(route: Route) -> Iterator[bytes]:
    """As large as they may be, and as costly as we know."""
    assert route.body is not None
    size = BULK if route.bulk else 60_000 if route.open else LARGE
    fields = [field.alias or name for name, field in route.body.model_fields.items()]
    yield b"{" + b",".join(b'"k%d":%d' % (n, n) for n in range(size // 20)) + b"}"
    yield b"[" * (size // 2)
    yield b'{"' + b'":{"'.join([b"a"] * (size // 8)) + b'":1' + b"}" * (size // 8)
    yield json.dumps(dict.fromkeys(fields, "\u00e4" * (size // 8 // max(1, len(fields))))).encode()
    yield json.dumps(dict.fromkeys(fields, [{"a": 1}] * (size // 12 // max(1, len(fields))))).encode()
    yield json.dumps({key: {f"k{n}": "v" for n in range(size // 24 // max(1, len(fields)))} for key in fields}).encode()


def filled(path: str, value: str) -> str:
    return "/".join(value if part.startswith("{") else part for part in path.split("/"))


@pytest.mark.usefixtures("ready")
@pytest.mark.timeout(600)
async def test_bodies(alice: Api, routes: list[Route]) -> None:
    slow: list[str] = []
    with_bodies = [route for route in routes if route.body is not None]
    assert {"/secret/{name}", "/fsCache", "/link", "/cluster", "/fs/{fsName}/content"} <= {r.path for r in with_bodies}
    for route in with_bodies:
        for number, body in enumerate(documents(route)):
            answer = await (step := Measured(alice.call(route.method, filled(route.path, "thing"), body)))
            name = f"{route.method} {route.path}, document {number}: {answer.status}"
            if answer.status >= 500 or len(answer.body) > MOST_ANSWER or step.longest > LONGEST:
                slow.append(f"{name}, {len(answer.body)} bytes, {step.longest:.2f} s")
    assert slow == []


@pytest.mark.usefixtures("ready")
@pytest.mark.timeout(600)
async def test_paths_and_queries(alice: Api, routes: list[Route]) -> None:
    slow: list[str] = []
    for route in routes:
        if route.media_type == "text/event-stream":
            continue
        names = [] if route.query is None else [f.alias or name for name, f in route.query.model_fields.items()]
        for value in ("x" * 8_000, "%2e%2e%2f" * 800, "9" * 6_000, "\u00e4\u4e2d" * 1_000, "*a" * 4_000):
            query = dict.fromkeys(names[:8], value)
            answer = await (step := Measured(alice.call(route.method, filled(route.path, value[:200]), query=query)))
            if answer.status >= 500 or len(answer.body) > MOST_ANSWER or step.longest > LONGEST:
                slow.append(f"{route.method} {route.path}, {value[:10]}: {answer.status}, {step.longest:.2f} s")
    assert slow == []
