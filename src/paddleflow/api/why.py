"""Why a job is in its state: GET /job/{id}/why. For one that waits, what is in its way and what would start it now."""

from __future__ import annotations

from collections.abc import Sequence

from paddleflow.access.callers import ROOT, Caller
from paddleflow.api.amounts import amounts
from paddleflow.api.jobs import NOT_WAITING, owned_job
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, NoQuery, Route
from paddleflow.base.clock import local_text
from paddleflow.base.quantity import Resources
from paddleflow.jobs.expected_starts import ExpectedStart, expected_starts
from paddleflow.jobs.model import NODE, JobStatus
from paddleflow.jobs.queries import get_tasks
from paddleflow.jobs.rows import JobRow, request_of
from paddleflow.queues.flavours import list_flavours
from paddleflow.queues.queues import find_queue, usable_queues
from paddleflow.scheduling.model import Reason
from paddleflow.scheduling.suggestions import Suggestion
from paddleflow.spec import wire_jobs as wire
from paddleflow.storage.node_caches import held_for_job
from paddleflow.store.database import Tx

MOST_SIZES = 1000  #: flavours that are tried as a smaller size
NAMED_NODES = 3  #: of those that hold its data


def standing(row: JobRow, now: float) -> Reason | None:
    """What there is to say of a job that does not wait for the scheduler; None of one that does."""
    status, message = JobStatus(row.status), f": {row.message}" if row.message else ""
    if status.final:
        return Reason("ended", f"ended at {local_text(row.finished_at)}, {status.value}{message}")
    if status in (JobStatus.TERMINATING, JobStatus.PREEMPTING):
        return Reason("ending", f"is being ended{message}")
    if status is JobStatus.RUNNING:
        return Reason("running", f"running since {local_text(row.started_at)}")
    if row.placed:
        return Reason("starting", "has its place and is being started")
    if row.gated:
        return Reason("held_back", row.message)
    if row.not_before is not None and row.not_before > now:
        return Reason("back_off", f"is tried again at {local_text(row.not_before)}{message}")
    return None


async def why(platform: Platform, call: Call[NoBody, NoQuery]) -> wire.JobWhy:
    now = platform.clock.now()
    row, queues, sizes, starts, near = await platform.database.read(_read_context, call.caller, call.path["id"], now)
    known = standing(row, now)
    suggestions: Sequence[Suggestion] = ()
    waiting = known is None
    if known is None:
        engine = platform.jobs_run_here.engines.engine(row.cluster)
        found = None if engine is None else await engine.explain(row.id, queues, sizes)
        if found is not None and found[0].code not in NOT_WAITING:
            known, suggestions = found
        owner = platform.jobs_run_here.engines.elsewhere.get(row.cluster, "")
        if engine is None and owner:
            known = Reason("machine_away", f"waits for the machine of cluster {row.cluster}: server {owner} is away")
    story = near
    if waiting:
        story += [await _why_not_there(platform, row, name, start) for name, start in starts.items()]
    reason = known or Reason("not_seen", row.message or "the scheduler has not looked at it yet")
    return {
        "id": row.id,
        "status": row.status,
        "queue": row.queue,
        "code": reason.code,
        "text": reason.text,
        "causes": [{"code": cause.code, "text": cause.text} for cause in (*reason.causes, *story)],
        "suggestions": [_suggestion(each) for each in suggestions],
    }


async def _why_not_there(platform: Platform, row: JobRow, cluster: str, start: ExpectedStart | None) -> Reason:
    """Why a job waits that another cluster of its queue might have taken, and when it would start there."""
    engine = platform.jobs_run_here.engines.engine(cluster)
    found = None if engine is None else await engine.why_not(request_of(row))
    if found is None:
        trouble = platform.jobs_run_here.engines.trouble(cluster)
        found = trouble or "another server runs it, or nobody: what it has free is not known here"
    words = found or "it would start there now, and is about to be moved"
    if found and start is not None:
        words += f"; {start.text}"
    return Reason("cluster", f"cluster {cluster}: {words}")


def _story(row: JobRow) -> list[Reason]:
    """What others did to a job that has not ended: when it made way, and for whom; or when the cluster took its place away."""
    if not row.preemptions or JobStatus(row.status).final:
        return []
    times = "once" if row.preemptions == 1 else f"{row.preemptions} times"
    node = row.evicted_by.removeprefix(NODE)
    what = f"it made way for {node}" if node == row.evicted_by else f"it lost its place on node {node}"
    when = f"{what} at {local_text(row.evicted_at)}"
    return [Reason("preempted", f"{when}, {times} so far; {row.lost_seconds:.0f} s of its work were lost")]


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"


def _near(tx: Tx, row: JobRow) -> list[Reason]:
    """What the nodes of a job that has its place hold of its file systems, where any node holds something."""
    held = held_for_job(tx, row.id) if row.placed else {}
    if not held:
        return []
    nodes = {task.node for task in get_tasks(tx, row.id) if task.attempt == row.attempt}
    warm = [node for node in held if node in nodes]
    words = [f"node {node} holds {_size(held[node])} of its file systems" for node in warm[:NAMED_NODES]]
    if len(warm) > NAMED_NODES:
        words.append(f"{len(warm) - NAMED_NODES} more of its nodes hold some")
    most = next(iter(held))
    if most not in nodes:
        words.append(f"most of them is on node {most}: {_size(held[most])}")
    return [Reason("locality", "; ".join(words))]


def starts_elsewhere(tx: Tx, row: JobRow, now: float) -> dict[str, ExpectedStart | None]:
    """The other clusters to which a job may go, in order of preference, and what each has said of its start."""
    queue = find_queue(tx, row.queue)
    if queue is None or not queue.other_clusters or row.run_id is not None:
        return {}
    found = expected_starts(tx, row.id, now)
    return {name: found.get(name) for name in queue.clusters if name != row.cluster}


def _read_context(
    tx: Tx, caller: Caller, job: str, now: float
) -> tuple[JobRow, list[str], list[Resources], dict[str, ExpectedStart | None], list[Reason]]:
    """The job, the queues that its owner may use, the sizes that there are, its other clusters, and where its data is."""
    row = owned_job(tx, caller, job)
    queues = usable_queues(tx, row.user_name, row.user_name == ROOT)
    sizes = [each.each for each in list_flavours(tx, 0, MOST_SIZES)]
    return row, queues, sizes, starts_elsewhere(tx, row, now), _story(row) + _near(tx, row)


def _suggestion(suggestion: Suggestion) -> wire.Suggestion:
    answer: wire.Suggestion = {"code": suggestion.code, "text": suggestion.text}
    if suggestion.victims:
        answer["victims"] = list(suggestion.victims)
    if suggestion.request is not None:
        answer["queue"] = suggestion.request.queue
        answer["members"] = [
            {"role": need.role, "replicas": need.count, "each": {**amounts(need.each)}}
            for need in suggestion.request.member_sets
        ]
    return answer


ROUTES = (
    Route(
        "GET", "/job/{id}/why", why, "Why a job is where it is; while it waits, what would start it now.",
        answer=wire.JobWhy, leader="job", errors=("404 JobNotFound", "403 AccessDenied"),
    ),
)  # fmt: skip
