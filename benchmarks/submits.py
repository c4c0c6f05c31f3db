"""Accepting jobs: durable submits a second through REST, bulk submit, and what is left of it after kill -9.

The jobs wait in a queue whose only slot is taken, so what is measured is the way from the socket to the disk, with the
scheduler looking at every new job as always. Each answer is sent after its job is on the disk. The peer is ``sbatch``,
called by four processes at a time. The last figure kills the server in the middle of such a load, starts it again and counts
the acknowledged jobs that are not there any more.

On one connection each submit waits for the one before it, the way to the disk and back included: beside it stands what a bare SQLite
file on the same disk takes in the same minutes, one small row a commit. Over several connections submits share that wait.
"""

from __future__ import annotations

import json
import random
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

from benchmarks.harness import begin, timed
from benchmarks.load import Answers, request, send
from benchmarks.ours import Server, single
from benchmarks.slurm import TUNED, NotHere, Slurm

QUEUE = {"schedulingPolicy": {"queue": "blocked"}}


def submits(server: Server, count: int, connections: int) -> Answers:
    body = json.dumps(single("true", **QUEUE)).encode()
    message = request("POST", "/job/single", server.token, body)
    return send(server.url, [message] * count, connections, keep=True)


def commits(folder: Path, count: int) -> float:
    """Commits a second of one row each in a bare SQLite file, as durable as ours."""
    with closing(sqlite3.connect(folder / "bare.db", isolation_level=None)) as connection:
        connection.execute("pragma journal_mode = wal")
        connection.execute("pragma synchronous = full")
        connection.execute("create table if not exists bare (id integer primary key, text text)")
        connection.execute("insert into bare (text) values (zeroblob(8000000))")
        connection.execute("pragma wal_checkpoint")  # the log has its length from now on, as that of a server at work
        return count / timed(
            lambda: [connection.execute("insert into bare (text) values ('job')") for _ in range(count)]
        )


def bulk(server: Server, jobs: int, each: int) -> float:
    """Jobs a second, `each` of them in one request, two requests at a time."""
    body = json.dumps({"jobs": [single("true", **QUEUE)] * each}).encode()
    messages = [request("POST", "/job/batch", server.token, body)] * (jobs // each)
    answers = send(server.url, messages, connections=2, keep=True).check()
    if sum(len(json.loads(body)["ids"]) for body in answers.bodies) != jobs:
        raise RuntimeError("fewer ids than jobs")
    return jobs / answers.seconds


def lost_by_kill(server: Server, seconds: float) -> tuple[int, int]:
    """Load the server, kill it, start it again: (acknowledged jobs, those of them that are gone)."""
    timer = threading.Timer(seconds, server.kill)
    timer.start()
    answers = submits(server, 1_000_000, 16)  # more than it can take: the kill ends it
    timer.join()
    acknowledged = {json.loads(body)["id"] for body in answers.bodies}
    server.start()
    kept = {job["id"] for job in server.jobs(queue="blocked")}
    return len(acknowledged), len(acknowledged - kept)


def peer_rate(count: int) -> float | None:
    try:
        with Slurm(TUNED) as slurm:
            _, accepted = slurm.singly(count)
            return count / accepted
    except NotHere:
        return None


def main() -> None:
    bench = begin("submits", __doc__)
    rounds, count, many = (2, 2000, 10_000) if bench.quick else (5, 10_000, 100_000)
    with Server(8) as server:
        server.block("blocked")
        submits(server, count // 4, 16).check()  # warm
        for connections in (1, 16, 64):
            rates = [
                submits(server, count if connections > 1 else count // 10, connections).check().rate
                for _ in range(rounds)
            ]
            bench.goal(f"durable submits, {connections} connections", "submits/s", rates, 3000)
            if connections == 16:
                best = rates
        turns = [
            (submits(server, count // 10, 1).check().rate, commits(server.folder, count // 10)) for _ in range(rounds)
        ]
        alone, bare = zip(*turns, strict=True)
        bench.figure("durable submits, 1 connections", "submits/s", alone, "bare SQLite, a commit a row", bare)
        bench.goal(
            "bulk submit, 1,000 in a request", "jobs/s", [bulk(server, many, 1000) for _ in range(rounds)], 30_000
        )
    theirs = peer_rate(100 if bench.quick else 1000)
    if theirs:
        bench.figure("durable submits, 16 connections", "submits/s", best, "sbatch by four processes", theirs)
    acknowledged = gone = 0
    kills = 3 if bench.quick else 20
    with Server(8) as server:
        server.block("blocked")
        for _ in range(kills):
            some, lost = lost_by_kill(server, 0.2 + random.random() * 0.8)
            acknowledged, gone = acknowledged + some, gone + lost
    bench.note(f"{acknowledged} submits acknowledged before {kills} kills")
    bench.goal(f"acknowledged and gone after kill -9 (of {acknowledged})", "jobs", float(gone), 0.0, kills)
    bench.finish()


if __name__ == "__main__":
    main()
