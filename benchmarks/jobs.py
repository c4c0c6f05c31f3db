"""Jobs on an idle machine, ours beside Debian's Slurm in the same run: how soon a job runs, and how many a second end.

Both have 64 slots. A job's first act is to write down the time; the delay counts from the moment before the client sends:
for us a request on an open connection or the command line, for Slurm the start of ``sbatch`` or ``srun``. The 1,000 jobs
of ``true`` count from the first submit to the moment when no job is active any more, each a process of its own.

What the isolation of users costs is measured on one server in turns: a batch of jobs of the platform's root, who is not isolated, then
one of another user's, and so on; the figure is the median of the differences of such pairs.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import random
import subprocess
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

from benchmarks.harness import Bench, begin, percentile, wait_for
from benchmarks.load import request, send
from benchmarks.ours import COMMAND, KEEPER, PASSWORD, Server, command_of, single
from benchmarks.slurm import CONFIGURATIONS, SLOTS, NotHere, Slurm

SHARES = (0.5, 0.99)


def rest_delay(server: Server) -> float:
    """Seconds from the submit by REST to the job's first process telling the time."""
    mark = server.folder / "started"
    mark.unlink(missing_ok=True)
    body = json.dumps(single(f"date +%s.%N > {mark}.new && mv {mark}.new {mark}"))
    connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=60)
    connection.connect()
    time.sleep(random.random() / 10)
    submitted = time.time()
    connection.request("POST", "/api/paddleflow/v1/job/single", body, {"x-pf-authorization": server.token})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"the job was refused with {answer.status}")
    wait_for(mark.exists, "the job", within=60, every=0.002)
    server.settle()
    return float(mark.read_text()) - submitted


def command_delay(server: Server) -> float:
    """The same by the command line, from the start of its process."""
    mark = server.folder / "started"
    mark.unlink(missing_ok=True)
    document = server.folder / "job.json"
    document.write_text(json.dumps(single(f"date +%s.%N > {mark}.new && mv {mark}.new {mark}")))
    env = {"PADDLEFLOW_SERVER": server.url, "PADDLEFLOW_TOKEN": server.token, "PATH": "/usr/bin:/bin"}
    submitted = time.time()
    subprocess.run([COMMAND, "job", "submit", str(document)], env=env, check=True, stdout=subprocess.DEVNULL)
    wait_for(mark.exists, "the job", within=60, every=0.002)
    server.settle()
    return float(mark.read_text()) - submitted


def singly(server: Server, jobs: int) -> float:
    """Seconds for `jobs` jobs of ``true``, one request each over four connections."""
    message = request("POST", "/job/single", server.token, json.dumps(single("true")).encode())
    began = time.perf_counter()
    send(server.url, [message] * jobs, connections=4, keep=True).check()
    server.settle()
    return time.perf_counter() - began


def at_once(server: Server, jobs: int) -> float:
    """The same in one request."""
    began = time.perf_counter()
    server.submit_many([single("true")] * jobs, each=jobs)
    server.settle()
    return time.perf_counter() - began


def isolation(bench: Bench, server: Server, pairs: int, jobs: int) -> int:
    """What isolation adds to a launch: time per job of a batch, and the keeper's processor time. The number of jobs that ran."""
    root, name = server.token, "isolated"
    server.call("POST", "/user", {"username": name, "password": PASSWORD})
    other = server.call("POST", "/login", {"username": name, "password": PASSWORD})["authorization"]
    keeper = next(pid for pid in server.processes() if command_of(pid) == KEEPER)

    def batch(token: str) -> tuple[float, float]:
        """Milliseconds of a job: until it has ended, and of the keeper's processor."""
        before, began = server.cpu_seconds(keeper), time.perf_counter()
        server.token = token
        server.submit_many([single("true")] * jobs)
        server.token = root
        server.settle()
        return (time.perf_counter() - began) * 1000 / jobs, (server.cpu_seconds(keeper) - before) * 1000 / jobs

    for token in (root, other):
        batch(token)  # sandboxes are made, caches filled
    found = [(batch(root), batch(other)) for _ in range(pairs)]
    for place, what in enumerate(("time per job", "processor time of the keeper per job")):
        plain, isolated = ([pair[who][place] for pair in found] for who in (0, 1))
        bench.figure(f"{what}, isolated", "ms", isolated, "not isolated", plain)
        bench.goal(f"{what}, what isolation adds", "ms", [b - a for a, b in zip(plain, isolated, strict=True)], 1.0)
    return (2 * pairs + 2) * jobs


def is_isolated(server: Server) -> bool:
    wait_for(lambda: "isolation of users:" in server.log(), "the server says how users are isolated")  # after it serves
    return "isolation of users: by user" in server.log()


def check_all_succeeded(server: Server, jobs: int) -> None:
    found = sum(1 for _ in server.jobs(status="succeeded"))
    if found != jobs:
        raise RuntimeError(f"{found} jobs succeeded, {jobs} were submitted\n{server.log()}")


@contextlib.contextmanager
def _peer(bench: Bench, scheduling: str) -> Iterator[Slurm | None]:
    """Slurm, or None where it cannot run; the reason is said."""
    try:
        slurm = Slurm(scheduling).__enter__()
    except NotHere as error:
        bench.note(f"without Slurm: {error}")
        yield None
        return
    try:
        yield slurm
    finally:
        slurm.__exit__(None, None, None)


def main() -> None:
    bench = begin("jobs", __doc__)
    rounds, jobs = (1, 100) if bench.quick else (5, 1000)
    delays, slurm_delays = (20, 4) if bench.quick else (200, 20)
    slurm_rounds = 1  # of a minute each
    with Server(SLOTS) as server:
        rest = [rest_delay(server) for _ in range(delays)]
        command = [command_delay(server) for _ in range(max(5, delays // 5))]
        one_each = [jobs / singly(server, jobs) for _ in range(rounds)]
        together = [jobs / at_once(server, jobs) for _ in range(rounds)]
        check_all_succeeded(server, len(rest) + len(command) + 2 * rounds * jobs)
    # Few slots, so that the time of a batch is that of its launches and not of the machine's queue of processes.
    with Server(2, PADDLEFLOW_SERVER_LOG_LEVEL="info") as server:
        if is_isolated(server):
            ran = isolation(bench, server, *((10, 20) if bench.quick else (60, 20)))
            check_all_succeeded(server, ran)
        else:
            bench.note("users are not isolated here: the server is not root, or the kernel forbids it")
    for share in SHARES:
        goal = {0.5: 20.0, 0.99: 60.0}[share]
        bench.goal(f"submit to running, p{share * 100:.0f}", "ms", percentile(rest, share) * 1000, goal, len(rest))
    bench.goal(f"{jobs} jobs of true, one request each", "jobs/s", one_each, 300)
    for name, scheduling in CONFIGURATIONS.items():
        with _peer(bench, scheduling) as slurm:
            if slurm is None:
                break
            batch = [slurm.batch_delay() for _ in range(slurm_delays)]
            direct = [slurm.direct_delay() for _ in range(slurm_delays)]
            for share in SHARES:
                label, mine = f"p{share * 100:.0f}", percentile(rest, share) * 1000
                typed = percentile(command, share) * 1000
                theirs, quick = percentile(batch, share) * 1000, percentile(direct, share) * 1000
                bench.figure(f"REST to running, {label}", "ms", mine, f"sbatch, {name}", theirs, slurm_delays)
                bench.figure(f"REST to running, {label}", "ms", mine, f"srun, {name}", quick, slurm_delays)
                bench.figure(f"command line to running, {label}", "ms", typed, f"sbatch, {name}", theirs, slurm_delays)
            theirs_each = [jobs / slurm.singly(jobs)[0] for _ in range(slurm_rounds)]
            bench.figure(f"{jobs} jobs of true, one by one", "jobs/s", one_each, f"sbatch, {name}", theirs_each)
            theirs_array = [jobs / slurm.array(jobs) for _ in range(slurm_rounds)]
            bench.figure(f"{jobs} jobs of true, at once", "jobs/s", together, f"sbatch --array, {name}", theirs_array)
    bench.finish()


if __name__ == "__main__":
    main()
