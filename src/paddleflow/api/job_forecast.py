"""When a waiting job will probably start: GET /job/{id}/eta."""

from __future__ import annotations

from paddleflow.api.jobs import owned_job
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, NoQuery, Route
from paddleflow.api.sse import disconnected, until_first
from paddleflow.api.why import standing, starts_elsewhere
from paddleflow.base.clock import local_text
from paddleflow.errors import PaddleFlowError
from paddleflow.jobs.forecaster import FUTURES, Forecasts, Question
from paddleflow.jobs.rows import JobRow
from paddleflow.scheduling.forecast import Forecast
from paddleflow.simulator.forecast_worker import Problem
from paddleflow.spec import wire_scheduler as wire

NOT_SEEN = "the scheduler has not looked at it yet"
NEVER = "it does not start while things are as they are: see job why"


async def eta(platform: Platform, call: Call[NoBody, NoQuery]) -> wire.JobEta:
    now, place = platform.clock.now(), platform.jobs_run_here
    row = await platform.database.peek(owned_job, call.caller, call.path["id"])
    answer: wire.JobEta = {
        "id": row.id,
        "status": row.status,
        "queue": row.queue,
        "text": "",
        "learntFrom": place.durations.learnt,
    }
    known = standing(row, now)
    found: list[Forecasts | PaddleFlowError | None] = []

    async def ask() -> Question | None:
        profiles = await platform.database.read(place.durations.update)
        engine = place.engines.engine(row.cluster)
        snapshot = None if engine is None else await engine.snapshot(now)
        if snapshot is None:
            return None
        seconds = platform.settings.scheduling.forecast_seconds
        problem = Problem(snapshot, place.durations.estimates(snapshot, profiles), FUTURES, seconds)
        return Question(problem, place.durations.learnt)

    async def work() -> None:
        try:
            found.append(await place.forecasters[row.cluster].forecasts(row.id, now, ask))
        except PaddleFlowError as error:
            found.append(error)

    if known is None:
        await until_first(work, lambda: disconnected(call.request.receive))
        starts = await platform.database.read(starts_elsewhere, row, now)
        if starts:
            answer["otherClusters"] = [
                {"cluster": name, "text": "not known" if start is None else start.text}
                for name, start in starts.items()
            ]
    else:
        answer["text"] = known.text
    for outcome in found:
        if isinstance(outcome, PaddleFlowError):
            raise outcome
        if outcome is None:
            answer["text"] = NOT_SEEN
        else:
            _fill(answer, row, outcome, platform, now)
    return answer


def _fill(answer: wire.JobEta, row: JobRow, forecasts: Forecasts, platform: Platform, now: float) -> None:
    answer["learntFrom"] = forecasts.learnt
    start = forecasts.starts.get(row.id)
    if start is None:
        answer["text"] = NOT_SEEN
    elif start.beyond is not None:
        answer["text"] = f"starts after {local_text(forecasts.at + start.beyond)}, later than could be computed"
    elif start.forecast is None:
        answer["text"] = NEVER
    elif start.unknown:
        answer["text"] = (
            f"not known: {start.unknown} must end first, and no job like it has ended here yet; "
            "a forecast needs the same name, program or image"
        )
    else:
        durations = platform.jobs_run_here.durations
        corrected = durations.correct(row.id, row.queue, start.forecast, forecasts.at)
        _fill_numbers(answer, corrected, forecasts.at, now)


def _fill_numbers(answer: wire.JobEta, found: Forecast, at: float, now: float) -> None:
    middle, early, late = (max(0.0, at + seconds - now) for seconds in (found.middle, found.early, found.late))
    answer["seconds"], answer["early"], answer["late"] = (round(seconds, 1) for seconds in (middle, early, late))
    words = [local_text(now + seconds) for seconds in (middle, early, late)]
    answer["expectedStart"], answer["earliestStart"], answer["latestStart"] = words
    answer["text"] = f"starts about {words[0]}, in four of five cases between {words[1]} and {words[2]}"


ROUTES = (
    Route(
        "GET", "/job/{id}/eta", eta, "When a waiting job will probably start.",
        answer=wire.JobEta, leader="job", errors=("404 JobNotFound", "403 AccessDenied", "503 Unavailable"),
    ),
)  # fmt: skip
