"""Routes of a run's events, its graph, and its differences from another run."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_core import to_json
from starlette.responses import Response

from paddleflow.api.events import FollowedKind, JobEventsQuery, history
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, Route
from paddleflow.api.runs import owned_run, run_with_components
from paddleflow.api.sse import EventStream
from paddleflow.runs import codec
from paddleflow.runs.difference import difference
from paddleflow.runs.graph import graph_of, mermaid
from paddleflow.runs.model import FINAL_RUNS
from paddleflow.runs.rows import SQL, ComponentRow, RunRow
from paddleflow.runs.svg import svg
from paddleflow.spec import wire_runs as wire
from paddleflow.spec.run import DifferenceQuery, GraphQuery

RUN = FollowedKind("run", SQL["run_status"], FINAL_RUNS)
_MEDIA = {"json": "application/json", "svg": "image/svg+xml", "mermaid": "text/plain; charset=utf-8"}


async def run_events(platform: Platform, call: Call[NoBody, JobEventsQuery]) -> EventStream:
    await platform.database.read(owned_run, call.caller, call.path["id"])
    return history(platform, call, RUN)


async def run_graph(platform: Platform, call: Call[NoBody, GraphQuery]) -> Response:
    row, components = await platform.database.read(run_with_components, call.caller, call.path["id"])
    user, form = call.caller.name, call.query.format
    body = await platform.computing.run(user, _picture, row, components, form, platform.clock.now())
    return Response(body, media_type=_MEDIA[form])


def _picture(row: RunRow, components: Sequence[ComponentRow], form: str, now: float) -> bytes:
    pipeline = codec.load(row.pipeline)
    graph = graph_of(pipeline, row.status, components, now)
    if form == "json":
        return to_json(graph)
    return (svg(graph, f"{row.id} {row.name}: {row.status}") if form == "svg" else mermaid(graph)).encode()


async def run_difference(platform: Platform, call: Call[NoBody, DifferenceQuery]) -> wire.Difference:
    first = await platform.database.read(run_with_components, call.caller, call.path["id"])
    second = await platform.database.read(run_with_components, call.caller, call.query.other)
    return await platform.computing.run(call.caller.name, difference, *first, *second)


_REFUSED = ("404 RunNotFound", "403 AccessDenied")

ROUTES = (
    Route(
        "GET", "/run/{id}/events", run_events, "A run's history as server-sent events, from any position, live to its end.",
        query=JobEventsQuery, media_type="text/event-stream", errors=_REFUSED,
    ),
    Route(
        "GET", "/run/{id}/graph", run_graph, "A run's graph with states: JSON, SVG or Mermaid.",
        query=GraphQuery, answer=wire.Graph, errors=_REFUSED,
    ),
    Route(
        "GET", "/run/{id}/diff", run_difference, "What a run and another one differ in.",
        query=DifferenceQuery, answer=wire.Difference, errors=_REFUSED,
    ),
)  # fmt: skip
