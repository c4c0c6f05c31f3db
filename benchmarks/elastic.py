"""Elastic parameter-server jobs on 133 nodes with 2,348 cores: `scripts/bench elastic`.

The published EDL experiment again, second by second, with our own rules. Case 1: 20 jobs of 2 to 60 trainers, 12.7 s
apart. Case 2: 6 jobs beside an online service that goes 400, 300, 200, 100, 200, 300, 400 members. Terminated trainers
hold their node for 15 to 30 s, a member of the service for 3 s. `theirs` is what the published logs show (with the
averages corrected) where there is such a figure, else the goal. Trainers are resized by `scheduling.rounds.trainers`.
"""

from __future__ import annotations

from benchmarks.harness import Bench, begin
from paddleflow.scheduling.rounds.trainers import resize
from paddleflow.simulator.elastic import ElasticSimulation, PsJob, edl_nodes
from paddleflow.simulator.metrics import jain, mean

HEADROOM = 3  #: trainers' worth of cores that stay idle for whoever comes
LEVELS, LEVEL_SECONDS = (400, 300, 200, 100, 200, 300, 400), 90
PUBLISHED = "edl, published logs"


def crowd(count: int, apart: float) -> list[PsJob]:
    return [PsJob(f"job-{i:02}", int(i * apart), 2, 60) for i in range(count)]


def first_case(bench: Bench, seeds: range) -> None:
    pending, latest, fair, use, least = [list[float]() for _ in range(5)]
    for seed in seeds:
        jobs = crowd(20, 12.7)
        simulation = ElasticSimulation(edl_nodes(), jobs, resize, HEADROOM, seed)
        simulation.run(int(19 * 12.7) + 310)
        waits = [(len(simulation.use) if job.started_at is None else job.started_at) - job.submitted_at for job in jobs]
        pending.append(mean(waits))
        latest.append(max(waits))
        fair.append(1 - jain([job.trainers for job in jobs]))
        least.append(min(job.trainers for job in jobs))
        use.append(100 - 100 * mean(simulation.use[:550]))
    bench.figure("20 jobs: mean pending", "s", pending, PUBLISHED, 47.2)
    bench.goal("20 jobs: mean pending against the goal", "s", pending, 30.0)
    bench.goal("20 jobs: longest until a job has its minimum", "s", latest, 30.0)
    bench.goal("20 jobs: 1 − Jain index of trainers", "index", fair, 0.1)
    bench.note(f"the poorest job has {min(least):.0f} trainers at the end, the least it asked for is 2")
    bench.figure("20 jobs: cores idle", "%", use, PUBLISHED, 100 - 80.57)


def second_case(bench: Bench, seeds: range) -> None:
    returns, use = list[float](), list[float]()
    for seed in seeds:
        simulation = ElasticSimulation(
            edl_nodes(), crowd(6, 6.5), resize, HEADROOM, seed,
            lambda second: LEVELS[min(len(LEVELS) - 1, second // LEVEL_SECONDS)],
        )  # fmt: skip
        simulation.run(LEVEL_SECONDS * (len(LEVELS) + 1))
        use.append(100 - 100 * mean(simulation.use[:550]))
        for step in range(4, len(LEVELS)):
            asked = step * LEVEL_SECONDS
            full = [
                at for at in range(asked, asked + LEVEL_SECONDS) if simulation.online[at][0] == simulation.online[at][1]
            ]
            returns.append(float(full[0] - asked) if full else float(LEVEL_SECONDS))
    bench.goal("online service: seconds until 100 members more are all there", "s", returns, 30.0)
    bench.goal("online service: the longest of them", "s", max(returns), 30.0, len(returns))
    bench.figure("online service: cores idle", "%", use, PUBLISHED, 100 - 83.70)


def main() -> None:
    bench = begin("elastic", " ".join((__doc__ or "").split()))
    seeds = range(1, 6 if bench.quick else 11)
    first_case(bench, seeds)
    second_case(bench, seeds)
    bench.finish()


if __name__ == "__main__":
    main()
