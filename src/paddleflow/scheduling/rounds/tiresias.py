"""Tiresias: least attained service in two dimensions (GPUs × time), with two queues.

Jobs start in the first queue and fall into the second for good once they have had `threshold` GPU seconds. Who is first
in the first queue, then in the second, runs, each with the number of GPUs it asked for; who does not fit is passed over
and loses what it had. Knows no durations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paddleflow.scheduling.rounds.model import RoundJob, Spread, free_after, take_emptiest

THRESHOLD = 16 * 3600.0  #: GPU seconds


class Tiresias:
    def __init__(self, threshold: float = THRESHOLD) -> None:
        self._threshold = threshold
        self._fallen: list[str] = []  # the second queue, in the order in which they fell

    def allot(self, now: float, jobs: Sequence[RoundJob], nodes: Mapping[str, int]) -> dict[str, Spread]:
        by_name = {job.job: job for job in jobs}
        self._fallen = [name for name in self._fallen if name in by_name]
        known = set(self._fallen)
        self._fallen += [job.job for job in jobs if job.job not in known and job.served >= self._threshold]
        known.update(self._fallen)
        order = [job for job in jobs if job.job not in known] + [by_name[name] for name in self._fallen]
        room, chosen = sum(nodes.values()), list[RoundJob]()
        for job in order:
            if job.most <= room:
                room -= job.most
                chosen.append(job)
        spreads = {job.job: job.held for job in chosen if job.held}
        free = free_after(nodes, spreads)
        for job in chosen:
            if job.job not in spreads:
                spreads[job.job] = take_emptiest(free, job.most)
        return spreads
