"""Speed of the scheduling core: `scripts/bench scheduling [--quick] [--write]`. One JSON line per figure.

The peer of each figure is the obvious scheduler measured in the same run: it keeps the pending jobs sorted and looks at
every node for every job (first fit by a full scan). Decisions are members placed and jobs started, not jobs finished.
Seconds are those of the processor, one core: the core does no I/O, and the machines are shared. The garbage collector is
set as the server sets it.
"""

from __future__ import annotations

import gc
import random
import resource
import time
from collections.abc import Callable

from benchmarks.harness import Bench, begin, percentile
from paddleflow.base.quantity import Resources
from paddleflow.scheduling.core import Core
from paddleflow.scheduling.model import MemberSet, Node, Queue, Request, Start
from paddleflow.scheduling.suggestions import suggest
from paddleflow.server.main import COLLECTOR

GI = 2**30
GPU = "nvidia.com/gpu"
FLAVOURS = (
    [Resources.of(c * 1000, c * 4 * GI) for c in (1, 2, 4, 8, 16)]
    + [Resources.of(g * 4000, g * 16 * GI, {GPU: g * 1000}) for g in (1, 2, 4, 8)]
    + [Resources.of(1000, 4 * GI, {GPU: 250})]
)


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
    member_sets = (MemberSet("worker", draw.randint(2, 64) if gang else 1, each),)
    queue = f"q{min(int(draw.expovariate(4) * queues), queues - 1):03}"
    return Request(f"job-{serial}", queue, member_sets, serial / 1000, serial, draw.choice((0, 0, 0, 5, 10)))


def timed(work: Callable[[], object]) -> float:
    gc.collect()
    begin = time.process_time()
    work()
    return time.process_time() - begin


def answers(ask: Callable[[str], object], jobs: list[str]) -> list[float]:
    """The seconds of each question, one after the other."""
    gc.collect()
    spent = []
    for job in jobs:
        begin = time.process_time()
        ask(job)
        spent.append(time.process_time() - begin)
    return spent


def naive_rate(nodes: list[Node], requests: list[Request], seconds: float) -> float:
    """Members placed a second by full scans."""
    free = [[n.capacity.cpu, n.capacity.memory, n.capacity.scalar(GPU)] for n in nodes]
    placed, begin = 0, time.process_time()
    for one in sorted(requests, key=lambda r: (-r.priority, r.submitted_at)):
        member_set = one.member_sets[0]
        cpu, memory, gpu = member_set.each.cpu, member_set.each.memory, member_set.each.scalar(GPU)
        for _ in range(member_set.count):
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


def large(bench: Bench, nodes_count: int, pending: int, queues_count: int, rounds: int) -> None:
    draw = random.Random(1)
    nodes, queues = cluster(nodes_count, queues_count)
    requests = [request(draw, serial, queues_count) for serial in range(pending)]
    core = Core()
    core.set_nodes(nodes)
    core.set_queues(queues)
    where = f"{nodes_count} nodes, {pending} pending, {queues_count} queues"
    bench.figure(f"load, {where}", "s", timed(lambda: core.submit_many(requests)), n=pending)
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
    bench.figure(f"first cycle with all reasons, {where}", "s", spent, n=len(running))
    bench.goal("first cycle: members placed, reasons included", "1/s", members / spent, 50_000, members)
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
    bench.figure(f"steady: members placed, {where}", "1/s", rates, "full scan, first fit", theirs)
    bench.goal("steady: members placed, against the goal", "1/s", rates, 50_000)
    bench.figure("steady: jobs started, releases, submits and reasons included", "1/s", job_rates)
    bench.figure("cycle in which nothing changed", "s", waits)
    bench.figure("jobs pending at the end", "jobs", float(core.pending_count))
    questions(bench, core, draw.sample(list(core.pending), 200), queues_count)


def questions(bench: Bench, core: Core, sample: list[str], queues: int) -> None:
    """What people ask about waiting jobs, and what all of it took in memory."""
    asked = answers(core.why, sample)
    bench.figure("why, p99", "s", percentile(asked, 0.99), n=len(asked))
    names = [f"q{i:03}" for i in range(0, queues, 50)]
    asked = answers(lambda job: suggest(core, job, names, FLAVOURS), sample)
    bench.figure("why with suggestions, median", "s", asked)
    bench.goal("why with suggestions, p99", "s", percentile(asked, 0.99), 0.02, len(asked))
    found = sum([len(suggest(core, job, names, FLAVOURS)) for job in sample[:50]])
    bench.figure("suggestions for 50 of them", "suggestions", float(found), n=50)
    tables = [timed(core.reasons) for _ in range(5)]
    bench.goal(f"reasons of all {core.pending_count} pending jobs", "s", tables, 1.0)
    bench.goal("peak memory", "MB", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 4096)


def laptop(bench: Bench, pending: int, rounds: int) -> None:
    """One node of two cores with one queue: one job ends, the next must start at once."""
    core = Core()
    core.set_nodes([Node("local", Resources.of(2000, 8 * GI))])
    core.set_queues([Queue("default-queue", Resources.of(20_000, 20 * GI))])
    sizes = [Resources.of(c, GI) for c in (500, 1000, 2000)]
    requests = [
        Request(f"job-{i}", "default-queue", (MemberSet("main", 1, sizes[i % 3]),), i, i) for i in range(pending)
    ]
    spent_loading = timed(lambda: core.submit_many(requests))
    bench.figure(f"load, one local node, {pending} pending", "s", spent_loading, n=pending)
    now = float(pending)
    running = [d.job for d in core.decide(now) if isinstance(d, Start)]
    spent = []
    for _ in range(rounds):
        core.release(running.pop(0))
        begin = time.process_time()
        running += [d.job for d in core.decide(now) if isinstance(d, Start)]
        spent.append(time.process_time() - begin)
    bench.figure("decide after one release, one local node, median", "ms", [1000 * one for one in spent])
    bench.figure("decide after one release, one local node, p99", "ms", 1000 * percentile(spent, 0.99), n=rounds)


def main() -> None:
    bench = begin("scheduling", " ".join((__doc__ or "").split()))
    gc.set_threshold(*COLLECTOR)
    laptop(bench, 100_000, 200 if bench.quick else 1000)
    large(bench, 10_000, 100_000, 200, 5 if bench.quick else 15)
    bench.finish()


if __name__ == "__main__":
    main()
