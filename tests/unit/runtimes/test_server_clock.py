"""The API server's clock beside ours."""

from __future__ import annotations

from paddleflow.base.clock import ManualClock
from paddleflow.base.ids import AttemptId
from paddleflow.errors import Unavailable
from paddleflow.kube.client import Client
from paddleflow.kube.transport import Request, Response
from paddleflow.runtimes.kubernetes.server_clock import COMPARE_EVERY, ServerClock
from paddleflow.runtimes.runtime import Ended

DATE = "Tue, 14 Nov 2023 23:13:20 GMT"  #: an hour later than the clock of the tests


class Wire:
    """Answers with one date, or not at all."""

    def __init__(self, *dates: str) -> None:
        self.dates = list(dates)

    async def send(self, request: Request) -> Response:
        if not self.dates:
            raise Unavailable("nobody answers")
        date = self.dates.pop(0)
        return Response(200, {"date": date} if date else {})


def client_of(wire: Wire) -> Client:
    return Client(wire)  # type: ignore[arg-type]  # nothing else of a transport is used


async def test_what_the_cluster_says_is_translated() -> None:
    clock, attempt = ManualClock(1_700_000_000.0), AttemptId("job-a.worker-0.1")
    server = ServerClock(clock, "lab")
    assert server.now() == clock.now()
    await server.compare(client_of(Wire(DATE)))
    assert server.now() == clock.now() + 3600
    assert server.ours(clock.now() + 3590) == clock.now() - 10
    end = server.ours_of(Ended(attempt, clock.now() + 3595, 0, started_at=clock.now() + 3590))
    assert (end.at, end.started_at) == (clock.now() - 5, clock.now() - 10)


async def test_nothing_is_reported_of_the_future_or_backwards() -> None:
    clock, attempt = ManualClock(1_700_000_000.0), AttemptId("job-a.worker-0.1")
    server = ServerClock(clock, "lab")
    assert server.ours(clock.now() + 60) == clock.now(), "a node that is ahead"
    end = server.ours_of(Ended(attempt, clock.now() - 60, 0, started_at=clock.now() + 5))
    assert end.at == end.started_at == clock.now()


async def test_it_is_asked_now_and_then_and_small_differences_are_none() -> None:
    clock = ManualClock(1_700_000_000.0)
    server, wire = ServerClock(clock, "lab"), Wire("", "Tue, 14 Nov 2023 22:13:21 GMT", DATE)
    await server.compare(client_of(wire))  # an answer without a date: asked again at once
    await server.compare(client_of(wire))
    assert (server.now(), len(wire.dates)) == (clock.now(), 1)
    await server.compare(client_of(wire))
    assert len(wire.dates) == 1
    clock.advance(COMPARE_EVERY)
    await server.compare(client_of(wire))
    assert server.now() == 1_700_003_600.0
    clock.advance(COMPARE_EVERY)
    await server.compare(client_of(wire))
    assert server.now() == clock.now() + 3600 - COMPARE_EVERY, "nobody answers: what was known stays"
