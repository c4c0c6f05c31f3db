"""A server with nothing to do: how soon it is ready, what memory it holds, what processor time it takes.

Memory and time are those of every process that the command started, as the proportional share (PSS) that the kernel counts.
"""

from __future__ import annotations

import time

from benchmarks.harness import begin
from benchmarks.ours import Server


def main() -> None:
    bench = begin("idle", __doc__)
    starts, watched = (3, 5.0) if bench.quick else (11, 30.0)
    first, again = [], []
    for _ in range(max(1, starts // 2)):
        server = Server(2)
        try:
            first.append(server.start())
        finally:
            server.__exit__(None, None, None)
    with Server(2) as server:
        for _ in range(starts):
            server.stop()
            again.append(server.start())
        time.sleep(3)  # let the start's own work end; this is what "idle" means, not a wait for anything
        memory, shares = [], []
        for _ in range(5):
            before, began = sum(map(server.cpu_seconds, server.processes())), time.monotonic()
            time.sleep(watched / 5)
            used = sum(map(server.cpu_seconds, server.processes())) - before
            shares.append(used / (time.monotonic() - began) * 100)
            memory.append(sum(map(server.memory, server.processes())))
    bench.goal("start to ready, first start", "s", first, 0.7)
    bench.goal("start to ready", "s", again, 0.7)
    bench.goal("idle memory", "MiB", memory, 90)
    bench.goal("idle processor time", "% of a core", shares, 1)
    bench.finish()


if __name__ == "__main__":
    main()
