"""The folder of traces that a benchmark replays: the option `--data`, and a clear answer when something is missing.

The project holds no traces. The folder has `traces/philly.csv.gz` (the Philly trace in the form kept by petuum/adaptdl,
branch osdi21-artifact) and `traces/pollux/` (workloads and application measurements of the same branch).
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from benchmarks.harness import Bench

VARIABLE = "PADDLEFLOW_BENCH_DATA"


def begin_with_data(name: str, about: str) -> tuple[Bench, Path]:
    """The benchmark that this process is, and its folder of traces."""
    parser = argparse.ArgumentParser(prog=f"scripts/bench {name}", description=about)
    parser.add_argument("--quick", action="store_true", help="fewer and smaller rounds, an answer within a minute")
    parser.add_argument("--write", action="store_true", help="keep the lines and write docs/benchmarks.md from them")
    parser.add_argument("--data", default=os.environ.get(VARIABLE, ""), help=f"folder with traces/ (or {VARIABLE})")
    options = parser.parse_args()
    if not options.data:
        parser.error(
            f"{name} replays traces that are not part of the project: name their folder with --data or {VARIABLE}"
        )
    folder = Path(options.data)
    if not (folder / "traces").is_dir():
        parser.error(f"{folder} holds no folder traces/")
    return Bench(name, " ".join(about.split()), options.quick, options.write), folder
