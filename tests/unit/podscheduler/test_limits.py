"""The bounds of ``docs/internals/limits.md`` that are the pod scheduler's."""

from __future__ import annotations

import asyncio
from typing import Any

from paddleflow.base.clock import ManualClock, SystemClock
from paddleflow.kube.client import Client
from paddleflow.kube.recorder import Recorder
from paddleflow.kube.resources import EVENTS, PODS
from paddleflow.kube.selectors import PodTerm
from paddleflow.kube.transport import Request, Response
from paddleflow.podscheduler import board as board_module
from paddleflow.podscheduler import neighbours, pods, reasons
from paddleflow.podscheduler.board import Board
from paddleflow.podscheduler.changeset import PodChangeset
from paddleflow.podscheduler.neighbours import Neighbours
from paddleflow.podscheduler.nodes import read_node
from paddleflow.podscheduler.pods import PodReader
from paddleflow.podscheduler.reasons import Reasons
from paddleflow.podscheduler.scheduler import BATCH
from paddleflow.podscheduler.writer import IN_FLIGHT, LINE, REPORTERS, Feedback, PodWriter
from paddleflow.scheduling.rules import Rules
from paddleflow.testing.api_server import MemoryApiServer
from tests.patience import soon


def read(name: str, **spec: Any) -> pods.Pod:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1m"}}}]
    return PodReader().read(
        {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {"schedulerName": "paddleflow", "containers": containers, **spec},
            "status": {},
        }
    )


def test_a_decision_starts_so_many_jobs() -> None:
    board = Board(Rules())
    room = {"cpu": "64", "memory": "64Gi", "pods": "1000"}
    board.put_node("n0", read_node({"metadata": {"name": "n0"}, "status": {"allocatable": room}}))
    for number in range(BATCH + 40):
        board.put_pod(f"default/p{number}", read(f"p{number}"))
    assert [len(board.decide(float(turn), BATCH).binds) for turn in range(1, 4)] == [BATCH, 40, 0]


class Held:
    """An API server that answers nothing until it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.go = asyncio.Event()

    async def send(self, request: Request) -> Response:
        self.asked += 1
        await self.go.wait()
        return Response(201, {}, b"{}")


async def test_so_many_bindings_are_under_way_and_a_long_line_keeps_decisions_back() -> None:
    server = Held()
    client = Client(server)  # type: ignore[arg-type]  # what a binding needs of a transport
    wanted = PodWriter(
        client, Recorder(client, "test", SystemClock()), SystemClock(), Board(Rules()),
        Feedback(lambda pod: None, lambda pod: None), volcano=lambda: False, claim=lambda key: None,
    )  # fmt: skip
    task = asyncio.ensure_future(wanted.run())
    wanted.carry_out(PodChangeset(binds=[(read(f"p{number}"), "n0") for number in range(IN_FLIGHT + LINE + 1)]))
    await soon(lambda: server.asked == IN_FLIGHT)
    await asyncio.sleep(0)
    assert (server.asked, wanted.line) == (IN_FLIGHT, LINE + 1)
    waiting = asyncio.ensure_future(wanted.short_line())
    await asyncio.sleep(0)
    assert not waiting.done()
    server.go.set()
    await waiting
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_so_many_reasons_are_written_at_once() -> None:
    server, clock, board = Held(), ManualClock(), Board(Rules())
    client = Client(server)  # type: ignore[arg-type]  # what a write needs of a transport
    writer = PodWriter(
        client, Recorder(client, "test", clock), clock, board,
        Feedback(lambda pod: None, lambda pod: None), volcano=lambda: False, claim=lambda key: None,
    )  # fmt: skip
    waiting = [read(f"p{number}") for number in range(REPORTERS + 5)]
    for pod in waiting:
        board.put_pod(f"default/{pod.name}", pod)
    task = asyncio.ensure_future(writer.run())
    writer.carry_out(board.decide(1.0, BATCH))  # there is no node
    clock.advance(60.0)
    await soon(lambda: server.asked == REPORTERS)
    for _ in range(20):
        await asyncio.sleep(0)
    assert server.asked == REPORTERS
    server.go.set()
    await soon(lambda: server.asked == REPORTERS + 5)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_a_message_is_cut() -> None:
    told = Reasons()
    told.put(read("p"), "x" * 5000, 0.0)
    found = told.take(1e9)
    assert found is not None
    assert len(found[1]) == reasons.LONGEST == 1024


async def test_an_event_s_message_is_cut() -> None:
    server = MemoryApiServer()
    recorder = Recorder(Client(server), "test", SystemClock())
    task = asyncio.ensure_future(recorder.run())
    recorder.record(PODS.object("p", "default"), "Reason", "x" * 5000)
    await soon(lambda: bool(server.writes))
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    [event] = (await Client(server).list(EVENTS, "default")).items
    assert event["note" if "note" in event else "message"] == "x" * 1024


def term(number: int) -> PodTerm:
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchLabels": {"app": f"a{number}"}}, "topologyKey": "kubernetes.io/hostname"}
    ]}}  # fmt: skip
    return read(f"t{number}", affinity=affinity).template.anti_affinity[0]


def test_descriptions_that_are_counted_are_few_and_the_oldest_goes() -> None:
    found = Neighbours()
    for number in range(neighbours.TALLIES + 3):
        found.domain_counts(term(number))
    assert len(found._tallies) == neighbours.TALLIES
    assert "a3" in str(next(iter(found._tallies)))


def test_templates_and_constraints_are_read_anew_when_there_are_too_many() -> None:
    reader, board = PodReader(), Board(Rules())
    templates = constraints = 0
    for number in range(board_module._CONSTRAINTS + 10):
        containers = [{"name": "c", "resources": {"requests": {"cpu": f"{number + 1}m"}}}]
        spec = {"schedulerName": "paddleflow", "containers": containers, "nodeSelector": {"disk": f"d{number}"}}
        metadata = {"name": f"p{number}", "namespace": "d", "uid": f"u{number}"}
        board.put_pod(f"d/p{number}", reader.read({"metadata": metadata, "spec": spec, "status": {}}))
        board.take_all_in(0.0)
        templates, constraints = max(templates, len(reader._templates)), max(constraints, len(board._constraints))
    assert (templates, constraints) == (pods._TEMPLATES, board_module._CONSTRAINTS)
