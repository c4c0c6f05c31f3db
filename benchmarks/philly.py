"""The Philly trace (82,247 GPU jobs) on 88 nodes of 8 GPUs: `scripts/bench philly --data DIR`.

Our default policy, which knows no durations, beside strict FIFO, fair share between the virtual clusters and an oracle
that always runs whoever has least left (moves cost it nothing). All four place jobs on the same core. 704 GPUs are near
the load of the busiest weeks (435 to 714 GPUs in use on average), so that there are queues. Finish-time fairness of a
virtual cluster: its mean completion on the shared cluster ÷ that alone on its share of the nodes; the figure is the worst.
The forecast is made for every n-th job that waits while each virtual cluster has nodes of its own, half more than
the mean load of its busiest week needs, from what had happened until then; relative errors are of waits of a minute or
more. `--quick` replays the first 15,000 jobs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

from benchmarks.harness import Bench
from benchmarks.traces import begin_with_data
from paddleflow.scheduling.baselines.disciplines import FairShare, Fifo, ShortestRemaining
from paddleflow.scheduling.baselines.model import Discipline
from paddleflow.simulator import metrics
from paddleflow.simulator.forecast_watcher import ForecastWatcher
from paddleflow.simulator.philly import apart, peaks, requests, shared, shares
from paddleflow.simulator.simulation import SimulatedJob
from paddleflow.simulator.traces import ClusterJob, read_philly

NODES, GPUS, QUICK_JOBS = 88, 8, 15_000
EVERY, FUTURES = 100, 3  #: of the forecast: every n-th waiter (fewer say little), and so many replays (more add little)
ROOM = 1.5  #: of the forecast: nodes, as a multiple of what the busiest week needs
PEERS: tuple[tuple[str, Callable[[], Discipline]], ...] = (
    ("fifo", Fifo), ("fair share", FairShare), ("oracle srtf", ShortestRemaining),
)  # fmt: skip


def main() -> None:
    bench, data = begin_with_data("philly", __doc__ or "")
    jobs = read_philly(data / "traces" / "philly.csv.gz")
    if bench.quick:
        jobs = jobs[:QUICK_JOBS]
    alone = apart(jobs, shares(jobs, NODES, GPUS), GPUS).run(requests(jobs, GPUS))
    bench.note("each virtual cluster alone: done")
    ours = list(shared(jobs, NODES, GPUS).run(requests(jobs, GPUS)).values())
    bench.note("default policy: done")
    for name, line in PEERS:
        theirs = list(shared(jobs, NODES, GPUS, line()).run(requests(jobs, GPUS)).values())
        compare(bench, name, ours, theirs, list(alone.values()))
    forecast(bench, jobs)
    bench.finish()


def compare(
    bench: Bench, name: str, ours: list[SimulatedJob], theirs: list[SimulatedJob], alone: list[SimulatedJob]
) -> None:
    mine, other, count = metrics.completion(ours), metrics.completion(theirs), len(ours)
    bench.figure("mean completion", "s", metrics.mean(mine), name, metrics.mean(other), count)
    bench.figure("p99 completion", "s", metrics.percentile(mine, 0.99), name, metrics.percentile(other, 0.99), count)
    peers = metrics.waiting_by_size(theirs)
    for size, seconds in metrics.waiting_by_size(ours).items():
        bench.figure(f"mean waiting, {size}", "s", seconds, name, peers[size], count)
    fair = [max(metrics.finish_time_fairness(records, alone).values()) for records in (ours, theirs)]
    bench.figure("finish-time fairness, worst virtual cluster", "ratio", fair[0], name, fair[1], count)


def forecast(bench: Bench, jobs: list[ClusterJob]) -> None:
    sizes = {group: math.ceil(ROOM * nodes) for group, nodes in peaks(jobs, GPUS).items()}
    watcher = ForecastWatcher(EVERY, FUTURES)
    apart(jobs, sizes, GPUS, watcher).run(requests(jobs, GPUS))
    said = [one for one in watcher.said if one.came is not None]
    long = [(one, one.came) for one in said if one.came is not None and one.came >= 60.0]
    if not long:
        bench.note("nobody waited a minute: no forecast to judge")
        return
    errors = [abs(one.corrected.middle - came) / came for one, came in long]
    plain = [abs(one.plain - came) / came for one, came in long]
    bench.figure(
        "forecast: median relative error", "%", 100 * statistics.median(errors), "position ÷ rate",
        100 * statistics.median(plain), len(long),
    )  # fmt: skip
    allocation = [one.corrected.early <= one.came <= one.corrected.late for one in said if one.came is not None]
    bench.goal("forecast: 80 % interval held", "%", 100 * sum(allocation) / len(allocation), 80.0, len(allocation))


if __name__ == "__main__":
    main()
