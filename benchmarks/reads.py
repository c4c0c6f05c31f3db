"""Reads with a long history: 1,000,000 finished jobs stored, asked for over 16 keep-alive connections.

One job is run to its end; then, with the server down, its rows are copied in the SQLite file under new ids and times. So
the history is as large and as wide as a real one, without waiting for a million processes.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import Bench, begin, percentile
from benchmarks.load import request, send
from benchmarks.ours import Server, single

_NUMBERS = "with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < :count)"


def multiply(file: Path, count: int) -> None:
    """`count` copies of the one finished job in the file, and of its tasks."""
    with sqlite3.connect(file) as database:
        database.execute("pragma synchronous = off")
        (only,) = database.execute("select id from jobs where status = 'succeeded'").fetchone()
        for table, key in (("tasks", "job_id"), ("jobs", "id")):
            columns = [row[1] for row in database.execute(f"pragma table_info({table})") if row[1] != "seq"]
            values = ", ".join(_copied(column, key) for column in columns)
            database.execute(
                f"{_NUMBERS} insert into {table} ({', '.join(columns)}) select {values} from numbers, {table} where {key} = :only",
                {"count": count, "only": only},
            )
    database.close()


def _copied(column: str, key: str) -> str:
    if column == key:
        return "printf('job-%016x', n)"
    return f"{column} + n * 0.001" if column.endswith("_at") and column != "delete_at" else column


def measure(bench: Bench, server: Server, stored: int, count: int, rounds: int) -> None:
    rng = random.Random(7)

    def one() -> str:
        return f"/job/job-{rng.randrange(1, stored + 1):016x}"

    marker = server.call("GET", "/job", status="succeeded", maxKeys=1000)["nextMarker"]
    kinds: dict[str, tuple[Callable[[], str], int]] = {
        "one job by id": (one, count),
        "newest 50 jobs": (lambda: "/job?maxKeys=50", count // 10),
        "50 succeeded jobs further back": (lambda: f"/job?status=succeeded&maxKeys=50&marker={marker}", count // 10),
        "failed jobs, of which there are none": (lambda: "/job?status=failed", count // 4),
    }
    for name, (path, requests) in kinds.items():
        rates, delays = [], []
        for _ in range(rounds):
            answers = send(server.url, [request("GET", path(), server.token) for _ in range(requests)]).check()
            rates.append(answers.rate)
            delays.extend(answers.delays)
        if path is one:
            bench.goal(f"{name}, {stored:,} stored", "reads/s", rates, 5000)
        else:
            bench.figure(f"{name}, {stored:,} stored", "reads/s", rates)
        bench.figure(f"{name}, {stored:,} stored, p99", "ms", percentile(delays, 0.99) * 1000, n=len(delays))


def main() -> None:
    bench = begin("reads", __doc__)
    stored, count, rounds = (50_000, 5000, 2) if bench.quick else (1_000_000, 20_000, 5)
    with Server(8) as server:
        server.call("POST", "/job/single", single("true"))
        server.settle()
        server.stop()
        bench.note(f"storing {stored:,} finished jobs")
        (file,) = server.data.glob("*.db")
        multiply(file, stored)
        bench.goal(f"start to ready, {stored:,} stored", "s", [server.start()], 0.7)
        measure(bench, server, stored, count, rounds)
    bench.finish()


if __name__ == "__main__":
    main()
