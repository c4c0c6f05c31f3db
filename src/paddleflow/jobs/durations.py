"""How long jobs ran, learnt from the database: for forecasts, what-ifs and queues that serve the shortest first.

`DurationHistory` is asked now and then; each time it reads only what ended since, newest first, so that it costs nothing while
nobody asks and little when somebody does. Narrow keys before broad ones: what was submitted together, who ran what of which
size, who ran what (the name, for a step of a pipeline the step; the program), which image, who, which queue. Jobs of which
only the last two are known count as unknown.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from paddleflow.jobs.model import NewJob
from paddleflow.jobs.queries import find_job
from paddleflow.jobs.rows import SQL
from paddleflow.scheduling.forecast import TOGETHER, Calibration, Durations, Estimate, Forecast
from paddleflow.scheduling.model import Request, Snapshot
from paddleflow.store.database import Tx

_AT_ONCE = 5000  #: ended jobs that are read at a time
_MOST_ACTIVE = 100_000  #: active jobs whose profiles are read
_MOST_ASKED = 500  #: forecasts that wait for their outcome
Keys = Sequence[Hashable]


class JobProfile(NamedTuple):
    """What forecasts know of a job."""

    id: str
    user_name: str
    name: str
    queue: str
    member_sets: str
    image: str | None
    command: str | None
    accepted_at: float


class Profile(NamedTuple):
    """What a job has in common with others, the narrowest first; the first `specific` stand for jobs of its own kind."""

    keys: Keys
    specific: int


def profile_of(job: JobProfile) -> Profile:
    user, name, member_sets, image = job.user_name, job.name, job.member_sets, job.image or ""
    program = " ".join((job.command or "").split(None, 2)[:2])  # `python train.py`, whatever its arguments
    specific: list[Hashable] = []
    if name or image or program:
        specific.append(("together", user, name, image, program, member_sets, job.accepted_at // TOGETHER))
    if name:
        specific += [("name", user, name, member_sets), ("name", user, name)]
    if program:
        specific += [("program", user, program, member_sets), ("program", user, program)]
    if image:
        specific.append(("image", user, image))
    return Profile((*specific, ("user", user, member_sets), ("user", user), ("queue", job.queue)), len(specific))


def keys_of(job: JobProfile) -> Keys:
    return profile_of(job).keys


def profile_of_new(job: NewJob, member_sets: str, at: float) -> JobProfile:
    """Of a job whose row is not written yet."""
    document = job.members[0].document if job.members else {}
    command = document.get("command")
    text = " ".join(command) if isinstance(command, list) else str(command or "")
    return JobProfile(job.id, job.user, job.name, job.queue, member_sets, document.get("image"), text, at)


def find_profile(tx: Tx, job: str) -> JobProfile | None:
    row = tx.one(SQL["job_profile"], id=job)
    return None if row is None else JobProfile(**row)


class DurationHistory:
    """What this server has seen of durations, and of its own forecasts."""

    def __init__(self) -> None:
        self.durations = Durations()
        self.learnt = 0
        self._calibration = Calibration()
        self._since = 0.0
        self._asked: dict[str, tuple[str, float, float]] = {}  # job → queue, when, seconds to the middle

    def update(self, tx: Tx) -> Mapping[str, Profile]:
        """Learn what ended since the last time; the profiles of the jobs that are active."""
        self.learn(tx)
        for job in list(self._asked):
            self._compare(tx, job)
        found = tx.rows(JobProfile, SQL["active_profiles"], limit=_MOST_ACTIVE)
        return {row.id: profile_of(row) for row in found}

    def learn(self, tx: Tx) -> None:
        """How long those ran that ended since the last time."""
        rows = tx.all(SQL["ended_since"], since=self._since, limit=_AT_ONCE)
        for row in reversed(rows):
            began = row["placed_at"] if row["placed_at"] is not None else row["started_at"]
            if began is not None:
                profile = JobProfile(*[row[name] for name in JobProfile._fields])
                self.durations.learn(keys_of(profile), max(0.0, row["finished_at"] - began))
                self.learnt += 1
        self._since = max([self._since, *[row["updated_at"] for row in rows]])

    def _compare(self, tx: Tx, job: str) -> None:
        """A forecast whose job has started or ended is worth something for the next ones."""
        row = find_job(tx, job)
        if row is None or row.finished_at is not None or row.placed:
            queue, at, middle = self._asked.pop(job)
            if row is not None and row.placed_at is not None and row.placed_at >= at:
                self._calibration.learn(queue, middle, row.placed_at - at)

    def estimates(self, snapshot: Snapshot, profiles: Mapping[str, Profile]) -> dict[str, Estimate]:
        """How long the jobs of a snapshot probably run."""
        kinds: dict[Profile, Estimate] = {}  # most jobs are alike, and equal estimates travel as one
        found = {}
        for request in (*snapshot.pending, *[allocation.request for allocation in snapshot.allocations]):
            profile = profiles.get(request.job) or _default(request)
            if profile not in kinds:
                kinds[profile] = self.durations.estimate(profile.keys, profile.specific)
            found[request.job] = kinds[profile]
        return found

    def correct(self, job: str, queue: str, forecast: Forecast, at: float) -> Forecast:
        """A forecast as the outcomes of earlier ones say; its own outcome will count for the next ones."""
        if len(self._asked) < _MOST_ASKED:
            self._asked.setdefault(job, (queue, at, forecast.middle))
        return self._calibration.correct(queue, forecast)

    def length(self, request: Request, ran: float, profiles: Mapping[str, Profile]) -> float:
        """Seconds that a job probably runs in all; always the same answer for the same job."""
        random = Random(request.job)  # noqa: S311  drawing a duration needs no secrets
        return ran + self.durations.draw((profiles.get(request.job) or _default(request)).keys, ran, random)


def _default(request: Request) -> Profile:
    return Profile((("user", request.user), ("queue", request.queue)), 0)
