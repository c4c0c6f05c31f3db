"""What processes on Kubernetes have in common: the first question, the page of a probe, errors that end them."""

from __future__ import annotations

import pytest

from paddleflow.base.clock import SystemClock
from paddleflow.errors import Forbidden, Invalid
from paddleflow.kube import process
from paddleflow.kube.cache import Cache
from paddleflow.kube.client import Client
from paddleflow.kube.lease import Lease
from paddleflow.kube.resources import LEASES, PODS, QUEUES, Object
from paddleflow.kube.transport import Request, Response
from paddleflow.testing.api_server import MemoryApiServer


async def test_an_api_server_that_does_not_answer_yet_is_waited_for() -> None:
    server, refused = MemoryApiServer(), list[str]()

    def busy(request: Request) -> Response | None:
        if len(refused) < 2:
            refused.append(request.path)
            return Response(503, {}, b"{}")
        return None

    server.refuse = busy
    client = Client(server)
    assert await process.served(lambda: client.serves(QUEUES))
    assert len(refused) == 2


async def test_an_api_server_that_refuses_is_not() -> None:
    server = MemoryApiServer()
    server.refuse = lambda _: Response(403, {}, b'{"kind": "Status", "code": 403, "reason": "Forbidden"}')
    client = Client(server)
    with pytest.raises(Forbidden):
        await process.served(lambda: client.serves(QUEUES))


async def test_a_process_that_stands_by_is_ready_and_says_for_whom() -> None:
    client = Client(MemoryApiServer())
    pods: Cache[Object] = Cache(client, PODS)
    lease = Lease(client, "mine", "default", "me", SystemClock())
    assert process.readiness([pods], lease) == (503, b"Pod: not listed yet\n")
    pods.synced.set()
    held = {"holderIdentity": "another", "leaseDurationSeconds": 60}
    await client.create(LEASES, LEASES.object("mine", "default", spec=held))
    assert not await lease._try()
    expected = b"ok: stands by: another holds the lease default/mine\n"
    assert process.readiness([pods], lease) == (200, expected)


def test_errors_that_end_a_process_are_told_without_a_trace(capsys: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        raise ExceptionGroup("tasks", [ExceptionGroup("more", [Invalid("no such thing")]), Invalid("nor that")])

    assert process.run(main) == 1
    assert capsys.readouterr().err == "error: no such thing\nerror: nor that\n"
