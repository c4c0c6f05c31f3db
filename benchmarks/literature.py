"""Round-based GPU policies on the eight workloads of the Pollux artifact: `scripts/bench literature --data DIR`.

64 GPUs on 16 nodes, rounds of 60 s, 30 s lost with each start or move. `theirs` is the published mean completion time of
the policy of that name; for ours it is Pollux's. Tiresias and Optimus are there to show that the simulator is right (the
goal is within 2 % either way, so their ratio should be 1); *goodput* is our own policy. What it knows: the measured step
times and gradient statistics of an application, as if it had been run before (Pollux learns them while a job runs).
What it does not know: how long a job still has to go. Its three numbers were chosen on workloads 2 and 6.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.traces import begin_with_data
from paddleflow.scheduling.rounds.goodput import Goodput
from paddleflow.scheduling.rounds.model import Policy
from paddleflow.scheduling.rounds.optimus import Optimus
from paddleflow.scheduling.rounds.tiresias import Tiresias
from paddleflow.simulator.metrics import mean
from paddleflow.simulator.rounds import mean_completion, nodes_of, simulate
from paddleflow.simulator.traces import read_application, read_workload

APPLICATIONS = ("bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3")
#: Mean completion in seconds: over the eight workloads, and on the sixth.
PUBLISHED = {"tiresias": (4038.18, 3469.69), "optimus": (5681.93, 5301.875), "pollux": (2751.13, 2446.13)}
ORDERS: tuple[tuple[str, str, Callable[[], Policy], bool, bool], ...] = (
    ("tiresias", "tiresias", Tiresias, False, True),
    ("optimus", "optimus", Optimus, False, False),
    ("goodput", "pollux", Goodput, True, False),
)


def main() -> None:
    bench, data = begin_with_data("literature", __doc__ or "")
    folder: Path = data / "traces" / "pollux"
    applications = {name: read_application(folder / "apps" / name) for name in APPLICATIONS}
    numbers = (6,) if bench.quick else tuple(range(1, 9))
    workloads = {number: read_workload(folder / "workloads" / f"workload-{number}.csv") for number in numbers}
    began = time.process_time()
    for name, peer, policy, adaptive, fixed in ORDERS:
        means = {}
        for number, jobs in workloads.items():
            outcomes = simulate(policy(), jobs, applications, nodes_of(16, 4), adaptive, fixed)
            means[number] = mean_completion(outcomes)
            bench.note(f"{name} on workload-{number}: {means[number]:.1f} s")
        every, sixth = PUBLISHED[peer]
        if not bench.quick:
            bench.figure(
                f"{name}: mean completion, 8 workloads", "s", mean(list(means.values())), f"{peer}, published", every, 8
            )
        bench.figure(f"{name}: mean completion, workload-6", "s", means[6], f"{peer}, published", sixth, 1)
    bench.goal("whole suite, one core", "s", time.process_time() - began, 300.0, 1)
    bench.finish()


if __name__ == "__main__":
    main()
