"""This tree beside an earlier revision of it, in turns: scripts/bench compare REVISION.

A server of each runs at the same time, and they get the same work alternately, so that a machine whose speed drifts, or that is
shared, slows both. Each figure is the median of many short rounds: seconds of a round, and seconds of the server's own processor time
in it. The revision is checked out into a folder of its own with an environment of its own; its benchmarks drive its server.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

# Of the tree that this runs in, which for the worker of the revision is not this file's.
from benchmarks import jobs, submits
from benchmarks.harness import begin, timed
from benchmarks.ours import Server, single
from benchmarks.peers import Graph
from benchmarks.pipelines import document, ours

HERE = Path(__file__).resolve()
ROOT = HERE.parent.parent
SETUP = "source scripts/lib/environment.sh; environment"

#: Kind of work → (what a round is, slots of the server, rounds).
KINDS = {
    "parallel": ("1,000 steps of true", 20, 15),
    "chain": ("50 steps of true, one after the other", 20, 60),
    "jobs": ("500 jobs of true, one request each", 64, 15),
    "at-once": ("1,000 jobs of true, one request", 64, 12),
    "submits": ("1,000 durable submits over 16 connections", 8, 15),
    "bulk": ("10,000 jobs submitted, 1,000 in a request", 8, 12),
    "restart": ("kill and start with 5,000 waiting jobs", 8, 8),
}


# ---- the worker: runs within either tree, with the modules of that tree ------------------------------------------------------------


def work(kind: str) -> None:
    """A round for each line of standard input; its seconds, and those of the server's processor time, are printed."""
    with Server(KINDS[kind][1]) as server:

        def restart() -> float:
            server.kill()
            return timed(server.start)

        rounds: dict[str, Callable[[], float]] = {
            "parallel": lambda: ours(server, document(Graph(1000))),
            "chain": lambda: ours(server, document(Graph(50, chain=True))),
            "jobs": lambda: jobs.singly(server, 500),
            "at-once": lambda: jobs.at_once(server, 1000),
            "submits": lambda: 1000 / submits.submits(server, 1000, 16).check().rate,
            "bulk": lambda: 10_000 / submits.bulk(server, 10_000, 1000),
            "restart": restart,
        }
        if kind in ("submits", "bulk", "restart"):
            server.block("blocked")
        if kind == "restart":
            server.submit_many([single("true", **submits.QUEUE)] * 5000)
        rounds[kind]()  # warm
        print("ready", flush=True)
        for _ in sys.stdin:
            before = 0.0 if kind == "restart" else _processor_time(server.pid)
            seconds = rounds[kind]()
            print(json.dumps([seconds, _processor_time(server.pid) - before]), flush=True)


def _processor_time(pid: int) -> float:
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


# ---- the comparison -----------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def checked_out(revision: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="paddleflow-before-") as folder:
        tree = Path(folder, "tree")
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "--quiet", "--detach", tree, revision], check=True)
        try:
            subprocess.run(["bash", "-c", SETUP], cwd=tree, check=True, stdout=sys.stderr)
            yield tree
        finally:
            subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", tree], check=True)


class Worker:
    def __init__(self, tree: Path, kind: str) -> None:
        python = tree / ".venv" / "bin" / "python"
        env = {**os.environ, "PYTHONPATH": str(tree)}
        self._process = subprocess.Popen(
            [python, "-P", HERE, "--work", kind],
            cwd=tree,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Worker:
        if self._read().strip() != "ready":
            raise RuntimeError("the worker did not start")
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def round(self) -> tuple[float, float]:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        seconds, processor = json.loads(self._read())
        return seconds, processor


def main() -> None:
    bench = begin("compare", __doc__ or "", argument="revision")
    with checked_out(bench.argument) as before:
        for kind, (what, _, rounds) in KINDS.items():
            mine: list[tuple[float, float]] = []
            theirs: list[tuple[float, float]] = []
            with Worker(ROOT, kind) as now, Worker(before, kind) as then:
                for number in range(max(3, rounds // 4) if bench.quick else rounds):
                    turns = [(now, mine), (then, theirs)]
                    for worker, found in turns if number % 2 else reversed(turns):
                        found.append(worker.round())
            for index, unit in enumerate(("s", "s of processor time")):
                peer = f"revision {bench.argument}"
                bench.figure(what, unit, [each[index] for each in mine], peer, [each[index] for each in theirs])
    bench.finish()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2])
    else:
        main()
