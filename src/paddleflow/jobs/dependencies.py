"""Jobs that run after others: gated until all of these have ended as required, cancelled when one of them has not.

A row of ``job_dependencies`` says who waits for whom. Code that writes the end of a job calls `settle` in the same transaction,
so a dependency is neither lost nor followed twice, whatever is killed at whatever line.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence

from paddleflow.jobs.admission import ended_words
from paddleflow.jobs.model import Dependency, JobStatus
from paddleflow.jobs.rows import SQL, delete_at
from paddleflow.settings import JobSettings
from paddleflow.spec.job import ANY, FAILED, SUCCEEDED
from paddleflow.store import events
from paddleflow.store.database import Tx, Value

SHOWN = 3  #: jobs that a message names


_VERBS = {SUCCEEDED: "to succeed", ANY: "to end", FAILED: "to fail"}


def waiting_message(waits_for: Sequence[Dependency]) -> str:
    """Why a gated job waits."""
    if len(waits_for) == 1:
        return f"waits for {waits_for[0].job} {_VERBS[waits_for[0].ending]}"
    verbs = {_VERBS[each.ending] for each in waits_for}
    shown = [each.job if len(verbs) == 1 else f"{each.job} {_VERBS[each.ending]}" for each in waits_for[:SHOWN]]
    more = f" and {len(waits_for) - SHOWN} more" if len(waits_for) > SHOWN else ""
    alike = f" {verbs.pop()}" if len(verbs) == 1 else ""
    return f"waits for {len(waits_for)} jobs{alike}: {', '.join(shown)}{more}"


def note(tx: Tx, jobs: Iterable[str], after: Sequence[Dependency]) -> None:
    """Each of these new jobs waits for all of those."""
    rows: list[dict[str, Value]] = [
        {"job_id": job, "after_id": earlier.job, "ending": earlier.ending} for job in jobs for earlier in after
    ]
    if rows:
        tx.many(SQL["insert_dependency"], rows)


def settle(tx: Tx, ended: Sequence[tuple[str, JobStatus, str]], rules: JobSettings, now: float) -> bool:
    """Jobs ended (id, status, message): release or cancel those that waited for them. Whether there were any."""
    found = False
    while ended:
        outcomes = {id: (status, message) for id, status, message in ended}
        ids = _ids(outcomes)
        waiting = [
            (row["job_id"], Dependency(row["after_id"], row["ending"])) for row in tx.all(SQL["dependents"], ids=ids)
        ]
        if not waiting:
            break
        found = True
        tx.run(SQL["forget_ended"], ids=ids)
        lost = {job: earlier for job, earlier in reversed(waiting) if not earlier.is_met(outcomes[earlier.job][0])}
        _release(tx, [job for job in dict.fromkeys(job for job, _ in waiting) if job not in lost], now)
        groups: dict[Dependency, list[str]] = defaultdict(list)
        for job, earlier in lost.items():
            groups[earlier].append(job)
        ended = [
            each
            for earlier, jobs in groups.items()
            for each in _cancel(tx, jobs, earlier, *outcomes[earlier.job], rules, now)
        ]
    return found


def _release(tx: Tx, jobs: Sequence[str], now: float) -> None:
    if not jobs:
        return
    left: dict[str, list[Dependency]] = defaultdict(list)
    for row in tx.all(SQL["dependencies"], ids=_ids(jobs)):
        left[row["job_id"]].append(Dependency(row["after_id"], row["ending"]))
    free = [job for job in jobs if job not in left]
    if free:
        tx.run(SQL["release_jobs"], ids=_ids(free), at=now)
    rows: list[dict[str, Value]] = [
        {"id": job, "message": waiting_message(waits_for), "at": now} for job, waits_for in left.items()
    ]
    if rows:
        tx.many(SQL["keep_waiting"], rows)


def _cancel(
    tx: Tx, jobs: Sequence[str], earlier: Dependency, status: JobStatus, message: str, rules: JobSettings, now: float
) -> list[tuple[str, JobStatus, str]]:
    """All that waited for one job are cancelled by the same few statements."""
    reason = f": {message}" if message else ""
    asked = f"after {earlier.job}" if earlier.ending != FAILED else f"only if {earlier.job} failed"
    words = f"it was to run {asked}, which has {ended_words(status)}{reason}"
    gone_at = delete_at(JobStatus.CANCELLED, now, None, rules)
    ids = _ids(jobs)
    tx.run(SQL["forget_waiting"], ids=ids)
    rows = tx.all(SQL["cancel_jobs"], ids=ids, message=words, at=now, delete_at=gone_at)
    cancelled = [row["id"] for row in rows]
    events.append_alike(tx, "job", cancelled, "status", now, {"status": JobStatus.CANCELLED, "message": words})
    return [(job, JobStatus.CANCELLED, f"it was to run {asked}") for job in cancelled]


def _ids(ids: Iterable[str]) -> str:
    return json.dumps([[id] for id in ids])
