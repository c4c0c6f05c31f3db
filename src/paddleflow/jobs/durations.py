"""How long jobs ran, learnt from the database: for forecasts, what-ifs and queues that serve the shortest first.

`DurationHistory` is asked now and then; each time it reads only what ended since, newest first, so that it costs nothing while
nobody asks and little when somebody does. Narrow keys before broad ones: what was submitted together, who ran what of which
size, who ran what (the name, for a step of a pipeline the step), which image, who, which queue.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from random import Random
from typing import NamedTuple

from paddleflow.jobs.queries import find_job
from paddleflow.jobs.rows import SQL, JobRow
from paddleflow.scheduling.forecast import TOGETHER, Calibration, Durations, Forecast, expect
from paddleflow.scheduling.model import Request, Snapshot
from paddleflow.store.database import Tx

_AT_ONCE = 5000  #: ended jobs that are read at a time, and active ones whose names are
_MOST_ASKED = 500  #: forecasts that wait for their outcome
Keys = Sequence[Hashable]


class JobProfile(NamedTuple):
    """What forecasts know of a job."""

    id: str
    user_name: str
    name: str
    queue: str
    needs: str
    members: str
    accepted_at: float


def keys_of(row: JobProfile | JobRow) -> Keys:
    """What a job has in common with others, the narrowest first."""
    user, name = row.user_name, row.name
    members = json.loads(row.members)
    image = next((member["document"].get("image", "") for member in members), "")
    named = [("name", user, name, row.needs), ("name", user, name)] if name else []
    pictured = [("image", user, image)] if image else []
    together = ("together", user, name, image, row.needs, row.accepted_at // TOGETHER)
    return (together, *named, *pictured, ("user", user, row.needs), ("user", user), ("queue", row.queue))


class DurationHistory:
    """What this server has seen of durations, and of its own forecasts."""

    def __init__(self) -> None:
        self.durations = Durations()
        self.learnt = 0
        self._calibration = Calibration()
        self._since = 0.0
        self._asked: dict[str, tuple[str, float, float]] = {}  # job → queue, when, seconds to the middle

    def look(self, tx: Tx) -> Mapping[str, Keys]:
        """Learn what ended since the last look; the keys of the jobs that are active."""
        self.learn(tx)
        for job in list(self._asked):
            self._compare(tx, job)
        found = [JobProfile(**row) for row in tx.all(SQL["active_profiles"], limit=_AT_ONCE)]
        return {row.id: keys_of(row) for row in found}

    def learn(self, tx: Tx) -> None:
        """How long those ran that ended since the last time."""
        rows = tx.all(SQL["ended_since"], since=self._since, limit=_AT_ONCE)
        for row in reversed(rows):
            began = row["placed_at"] if row["placed_at"] is not None else row["started_at"]
            if began is not None:
                self.durations.learn(
                    keys_of(JobProfile(*[row[name] for name in JobProfile._fields])),
                    max(0.0, row["finished_at"] - began),
                )
                self.learnt += 1
        self._since = max([self._since, *[row["updated_at"] for row in rows]])

    def _compare(self, tx: Tx, job: str) -> None:
        """A forecast whose job has started or ended is worth something for the next ones."""
        row = find_job(tx, job)
        if row is None or row.finished_at is not None or row.placed:
            queue, at, middle = self._asked.pop(job)
            if row is not None and row.placed_at is not None and row.placed_at >= at:
                self._calibration.learn(queue, middle, row.placed_at - at)

    def forecast(self, snapshot: Snapshot, job: str, keys: Mapping[str, Keys], futures: int) -> Forecast | None:
        """When a waiting job starts, by several futures of the queue; None when it starts in none of them."""
        random = Random(f"{job} {snapshot.now}")  # noqa: S311  drawing futures needs no secrets
        found = expect(snapshot, job, self.durations, lambda request: known(keys, request), random, futures)
        if found is None:
            return None
        queue = next(request.queue for request in snapshot.pending if request.job == job)
        if len(self._asked) < _MOST_ASKED:
            self._asked.setdefault(job, (queue, snapshot.now, found.middle))
        return self._calibration.correct(queue, found)

    def length(self, request: Request, ran: float, keys: Mapping[str, Keys]) -> float:
        """Seconds that a job probably runs in all; always the same answer for the same job."""
        random = Random(request.job)  # noqa: S311  as above
        return ran + self.durations.draw(known(keys, request), ran, random)


def known(keys: Mapping[str, Keys], request: Request) -> Keys:
    return keys.get(request.job) or (("user", request.user), ("queue", request.queue))
