"""Optimus with an oracle: every GPU goes where it shortens the remaining time most.

Each job gets one GPU in order of submission; every further one goes to the job whose remaining time it shortens most, as
long as it shortens any. The remaining steps and the step times are true ones, which no real scheduler has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paddleflow.scheduling.rounds.model import RoundJob, Spread, free_after, gpus, take_emptiest


class Optimus:
    def allot(self, now: float, jobs: Sequence[RoundJob], nodes: Mapping[str, int]) -> dict[str, Spread]:
        wanted = self._numbers(jobs, sum(nodes.values()))
        spreads = {job.job: job.held for job in jobs if job.held and gpus(job.held) == wanted[job.job]}
        free = free_after(nodes, spreads)
        for job in sorted(jobs, key=lambda job: wanted[job.job]):
            if wanted[job.job] and job.job not in spreads:
                spreads[job.job] = take_emptiest(free, wanted[job.job])
        return spreads

    def _numbers(self, jobs: Sequence[RoundJob], room: int) -> dict[str, int]:
        wanted, gain = dict[str, int](), dict[str, float]()
        by_name = {job.job: job for job in jobs}
        for job in jobs:
            wanted[job.job] = min(1, room)
            room -= wanted[job.job]
            gain[job.job] = _gain(job, 1) if wanted[job.job] and room else 0.0
        while room > 0:
            name = max(gain, key=gain.__getitem__)
            if gain[name] <= 0:
                break
            wanted[name] += 1
            gain[name] = _gain(by_name[name], wanted[name])
            room -= 1
        return wanted


def _gain(job: RoundJob, count: int) -> float:
    """Seconds that one GPU more than `count` would save."""
    if count >= job.most:
        return 0.0
    return (job.step_time(count) - job.step_time(count + 1)) * job.remaining
