"""Speed of the scheduling core: `scripts/bench scheduling [--quick]`. One JSON line per figure.

The peer of each figure is the obvious scheduler measured in the same run: it keeps the pending jobs sorted and looks at
every node for every job (first fit by a full scan). Decisions are members placed and jobs started, not jobs finished.
Seconds are those of the processor, one core: the core does no I/O, and the machines are shared.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import resource
import statistics
import time
from collections.abc import Callable

from paddleflow.base.quantity import Resources
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import Need, Node, Queue, Request, Start
from paddleflow.scheduling.suggestions import suggest

GI = 2**30
GPU = "nvidia.com/gpu"
FLAVOURS = (
    [Resources.of(c * 1000, c * 4 * GI) for c in (1, 2, 4, 8, 16)]
    + [Resources.of(g * 4000, g * 16 * GI, {GPU: g * 1000}) for g in (1, 2, 4, 8)]
    + [Resources.of(1000, 4 * GI, {GPU: 250})]
)


def emit(figure: str, ours: float, unit: str, n: int, theirs: float | None = None, peer: str = "") -> None:
    ratio = None if theirs is None else round(ours / theirs, 2)
    line = {"bench": "scheduling", "figure": figure, "ours": round(ours, 6), "peer": peer or None}
    print(json.dumps(line | {"theirs": theirs and round(theirs, 6), "ratio": ratio, "unit": unit, "n": n}), flush=True)


def cluster(nodes: int, queues: int) -> tuple[list[Node], list[Queue]]:
    """Half of the nodes with 8 devices. Queues in three levels, which together may have a little less than everything."""
    made = [
        Node(f"n{i:05}", Resources.of(64_000, 256 * GI, {GPU: 8000} if i % 2 else {})) for i in range(nodes)
    ]  # fmt: skip
    cpu, memory, gpu = nodes * 64_000 // queues, nodes * 256 * GI // queues, nodes // 2 * 8000 // queues
    most = Resources.of(cpu, memory, {GPU: gpu})
    tree = [Queue(f"division{i}", most * (queues // 4)) for i in range(4)]
    tree += [Queue(f"team{i:02}", most * (queues // 20), parent=f"division{i % 4}") for i in range(20)]
    least = Resources.of(cpu // 2, memory // 2, {GPU: gpu // 2})
    return made, tree + [Queue(f"q{i:03}", most, least, parent=f"team{i % 20:02}") for i in range(queues)]


def request(draw: random.Random, serial: int, queues: int) -> Request:
    """30 % gangs of 2 to 64 members, three priorities, skewed over the queues as teams are."""
    gang = draw.random() < 0.3
    each = draw.choice(FLAVOURS[:9] if gang else FLAVOURS)
    needs = (Need("worker", draw.randint(2, 64) if gang else 1, each),)
    queue = f"q{min(int(draw.expovariate(4) * queues), queues - 1):03}"
    return Request(f"job-{serial}", queue, needs, serial / 1000, serial, draw.choice((0, 0, 0, 5, 10)))


def timed(work: Callable[[], object]) -> float:
    gc.collect()
    begin = time.process_time()
    work()
    return time.process_time() - begin


def naive_rate(nodes: list[Node], requests: list[Request], seconds: float) -> float:
    """Members placed a second by full scans."""
    free = [[n.capacity.cpu, n.capacity.memory, n.capacity.scalar(GPU)] for n in nodes]
    placed, begin = 0, time.process_time()
    for one in sorted(requests, key=lambda r: (-r.priority, r.submitted_at)):
        need = one.needs[0]
        cpu, memory, gpu = need.each.cpu, need.each.memory, need.each.scalar(GPU)
        for _ in range(need.count):
            for room in free:
                if room[0] >= cpu and room[1] >= memory and room[2] >= gpu:
                    room[0] -= cpu
                    room[1] -= memory
                    room[2] -= gpu
                    placed += 1
                    break
        if time.process_time() - begin > seconds:
            break
    return placed / (time.process_time() - begin)


def large(nodes_count: int, pending: int, queues_count: int, rounds: int) -> None:
    draw = random.Random(1)
    nodes, queues = cluster(nodes_count, queues_count)
    requests = [request(draw, serial, queues_count) for serial in range(pending)]
    core = Core()
    core.set_nodes(nodes)
    core.set_queues(queues)
    where = f"{nodes_count} nodes, {pending} pending, {queues_count} queues"
    emit(f"load, {where}", timed(lambda: core.submit_many(requests)), "s", pending)
    now, serial = pending / 1000, pending
    running: list[str] = []
    members = 0

    def cycle() -> float:
        """One `decide`; the seconds it took. Reasons of new jobs are part of it."""
        nonlocal members
        begin = time.process_time()
        decisions = core.decide(now)
        spent = time.process_time() - begin
        starts = [d for d in decisions if isinstance(d, Start)]
        running.extend(start.job for start in starts)
        members = sum(len(start.assignments) for start in starts)
        return spent

    spent = cycle()
    emit(f"first cycle with all reasons, {where}", spent, "s", len(running))
    emit("first cycle: members placed, reasons included", members / spent, "1/s", members)
    rates, job_rates, waits = [], [], []
    for _ in range(rounds):
        draw.shuffle(running)
        ended, running[:] = running[: len(running) // 10], running[len(running) // 10 :]
        fresh = [request(draw, serial + i, queues_count) for i in range(len(ended))]
        serial += len(fresh)
        before = len(running)

        def change(ended: list[str] = ended, fresh: list[Request] = fresh) -> None:
            for job in ended:
                core.release(job)
            core.submit_many(fresh)

        spent = timed(change) + cycle()
        rates.append(members / spent)
        job_rates.append((len(running) - before) / spent)
        waits.append(timed(lambda: core.decide(now)))
    theirs = naive_rate(nodes, requests, 5.0)
    emit(f"steady: members placed, {where}", statistics.median(rates), "1/s", rounds, theirs, "full scan, first fit")
    emit("steady: jobs started (releases, submits and reasons included)", statistics.median(job_rates), "1/s", rounds)
    emit("cycle in which nothing changed", statistics.median(waits), "s", rounds)
    emit("jobs pending at the end", core.pending_count, "jobs", 1)
    sample = draw.sample([r.job for r in core.snapshot(now).pending], 200)
    asked = sorted(timed(lambda job=job: core.why(job)) for job in sample)  # type: ignore[misc]
    emit("why, p99", asked[int(len(asked) * 0.99)], "s", len(asked))
    names = [f"q{i:03}" for i in range(0, queues_count, 50)]
    asked = sorted(timed(lambda job=job: suggest(core, job, names, FLAVOURS)) for job in sample)  # type: ignore[misc]
    found = sum([len(suggest(core, job, names, FLAVOURS)) for job in sample[:50]])
    emit("why with suggestions, p99", asked[int(len(asked) * 0.99)], "s", len(asked))
    emit("suggestions for 50 of them", found, "suggestions", 50)
    emit("reason of every pending job", timed(core.reasons), "s", core.pending_count)
    emit("peak memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "MB", 1)


def laptop(pending: int, rounds: int) -> None:
    """One node of two cores with one queue: one job ends, the next must start at once."""
    core = Core()
    core.set_nodes([Node("local", Resources.of(2000, 8 * GI))])
    core.set_queues([Queue("default-queue", Resources.of(20_000, 20 * GI))])
    sizes = [Resources.of(c, GI) for c in (500, 1000, 2000)]
    requests = [Request(f"job-{i}", "default-queue", (Need("main", 1, sizes[i % 3]),), i, i) for i in range(pending)]
    emit(f"load, one local node, {pending} pending", timed(lambda: core.submit_many(requests)), "s", pending)
    now = float(pending)
    running = [d.job for d in core.decide(now) if isinstance(d, Start)]
    spent = []
    for _ in range(rounds):
        core.release(running.pop(0))
        begin = time.process_time()
        running += [d.job for d in core.decide(now) if isinstance(d, Start)]
        spent.append(time.process_time() - begin)
    spent.sort()
    emit("decide after one release, one local node, median", statistics.median(spent), "s", rounds)
    emit("decide after one release, one local node, p99", spent[int(rounds * 0.99)], "s", rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="answer within a minute")
    quick = parser.parse_args().quick
    laptop(100_000, 200 if quick else 1000)
    large(10_000, 100_000, 200, 5 if quick else 15)


if __name__ == "__main__":
    main()
