"""After kill -9: how soon a server with 100,000 pending and 2,000 running jobs decides again, and that nothing is lost or doubled.

The first part kills a server in that state and counts from the start of the next one to the first process of a job that
is submitted to it: that takes a decision among all the others. The second kills a server at random points, again and
again, while jobs are submitted that each write one line when they run: an acknowledged job without a line is lost, a
job with two lines was doubled.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
import time
from collections import Counter
from pathlib import Path

from benchmarks.harness import Bench, begin, wait_for
from benchmarks.load import request, send
from benchmarks.ours import Server, single


def first_decision(bench: Bench, pending: int, running: int, rounds: int) -> None:
    ready, decided, missing = [], [], []
    with Server(running + 64) as server:
        server.make_queue("running", running)
        server.make_queue("probe", 16)
        server.block("blocked")
        server.submit_many([single("sleep 100000", schedulingPolicy={"queue": "running"})] * running)
        wait_for(lambda: _running(server) == running, f"{running} running jobs", within=600, every=0.5)
        server.submit_many([single("true", schedulingPolicy={"queue": "blocked"})] * pending)
        mark = server.folder / "probe"
        probe = single(f"date +%s.%N > {mark}.new && mv {mark}.new {mark}", schedulingPolicy={"queue": "probe"})
        for _ in range(rounds):
            mark.unlink(missing_ok=True)
            server.kill()
            began = time.time()
            ready.append(server.start())
            server.call("POST", "/job/single", probe)
            wait_for(mark.exists, "the first decision", within=120, every=0.002)
            decided.append(float(mark.read_text()) - began)
            missing.append(float(running - _running(server)))
    what = f"{pending:,} pending, {running:,} running"
    bench.goal(f"restart to ready, {what}", "s", ready, 2.0)
    bench.goal(f"restart to a new job's process, {what}", "s", decided, 2.0)
    bench.goal(f"running jobs not taken up again, {what}", "jobs", max(missing), 0.0, rounds)


def _running(server: Server) -> int:
    return sum(1 for _ in server.jobs(status="running", queue="running"))


class Feeder:
    """Submits numbered jobs from a thread while the server dies and comes back."""

    def __init__(self, server: Server, lines: Path) -> None:
        self._server = server
        self._lines = lines
        self.sent = 0
        self.acknowledged: set[int] = set()

    def feed(self, seconds: float) -> None:
        """Submit for so long, or until the server is gone."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            numbers = range(self.sent, self.sent + 8)
            self.sent += 8
            for number in numbers:
                body = json.dumps(single(f"echo {number} >> {self._lines}", name=str(number))).encode()
                answers = send(self._server.url, [request("POST", "/job/single", self._server.token, body)], 1)
                if answers.statuses[200]:
                    self.acknowledged.add(number)
                else:
                    return


def nothing_lost(bench: Bench, kills: int) -> None:
    with Server(64) as server:
        lines = server.folder / "lines"
        lines.touch()
        feeder = Feeder(server, lines)
        for _ in range(kills):
            timer = threading.Timer(random.random() * 0.8, server.kill)
            timer.start()
            with contextlib.suppress(OSError):  # refused: it is dead already
                feeder.feed(5.0)
            timer.join()
            server.start()
        server.settle()
        ran = Counter(int(line) for line in lines.read_text().split())
    lost = sum(1 for number in feeder.acknowledged if not ran[number])
    doubled = sum(1 for count in ran.values() if count > 1)
    bench.note(f"{kills} kills, {len(feeder.acknowledged)} jobs acknowledged, {len(ran)} ran")
    bench.goal(f"jobs lost in {kills} kills (of {len(feeder.acknowledged)})", "jobs", float(lost), 0.0, kills)
    bench.goal(f"jobs doubled in {kills} kills", "jobs", float(doubled), 0.0, kills)


def main() -> None:
    bench = begin("restart", __doc__)
    first_decision(bench, *((5_000, 100, 2) if bench.quick else (100_000, 2_000, 5)))
    nothing_lost(bench, 8 if bench.quick else 200)
    bench.finish()


if __name__ == "__main__":
    main()
