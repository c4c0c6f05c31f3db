"""Random events against the scheduling core: `scripts/bench storm [--quick] [--write]`.

Ten million events (200,000 with `--quick`) in storms of 20,000, half of them with preemption and elastic jobs, on all
cores. Every storm counts everything again each 50 events; the first that does not hold ends the run with its seed and what
was wrong. Seconds are those of the processors.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

from benchmarks.harness import begin
from paddleflow.scheduling.rules import Rules
from paddleflow.simulator.storm import Storm, small_world

#: Everything that may happen does, and often: patience and pauses are short against the steps of the clock.
LIVELY = Rules(
    preemption=True, elastic=True, patience=60.0, least_run=5.0, window=60.0, resize_pause=5.0, restart_pause=20.0
)
EACH = 20_000
WHOLE, QUICK = 500, 10  #: storms


def one(seed: int) -> tuple[Counter[str], float]:
    """What happened in one storm, and its seconds; an error says which storm it was."""
    begun = time.process_time()
    storm = Storm(seed, replace(small_world(), rules=LIVELY if seed % 2 else Rules()))
    try:
        storm.run(EACH)
    except Exception as error:
        raise RuntimeError(f"storm {seed} broke after {storm.counts['events']} events: {error}") from error
    return Counter(storm.counts), time.process_time() - begun


def main() -> None:
    bench = begin("storm", " ".join((__doc__ or "").split()))
    storms = QUICK if bench.quick else WHOLE
    counts, seconds = Counter[str](), 0.0
    with ProcessPoolExecutor(os.cpu_count()) as workers:
        for found, spent in workers.map(one, range(storms)):
            counts += found
            seconds += spent
    bench.figure("events after which all held", "events", float(counts["events"]), n=storms)
    for kind in ("starts", "evictions", "resizes"):
        bench.figure(f"{kind} among them", kind, float(counts[kind]), n=storms)
    bench.figure("events, each with a cycle, on one core", "1/s", counts["events"] / seconds, n=storms)
    bench.finish()


if __name__ == "__main__":
    main()
