"""Pipelines of one-line steps through the real server, with logs and durable state, beside make and workflow engines.

Every engine runs the same steps (`true N`, output into a log of its own), two at a time; ours and make also twenty at a time.
Ours counts from the request to the moment when the run's last event is told. Ray's cluster is up before its clock begins, as our
server is; Flyte runs a local workflow's tasks one after another; the bare spawn loop is what the same processes take alone, each
with a folder and a log, without any state. A peer that is slow is measured fewer times, one that cannot be
installed is left out, and a line says so. Cached runs count the processor time that the server spent after the request was
answered. Memory in the engine is what a server holds more for a run whose steps all wait, once it has taken the run up after a
restart; a server that has read the run's document keeps room for that as well. The resume counts from the start of a server after
`kill -9` to the next step's folder.
"""

from __future__ import annotations

import base64
import tempfile
import time
from pathlib import Path

from benchmarks.harness import Bench, begin, wait_for
from benchmarks.ours import Server
from benchmarks.peers import PEERS, Graph, measured

NO_EVENT = 2**62  #: a position behind all events: a stream from there tells nothing and ends with the run


def document(graph: Graph, *, cache: bool = False, first: str = "true 0", mark: str = "") -> str:
    """The pipeline of a graph."""
    lines = ["name: bench", "docker_env: none", "parallelism: 20", "entry_points:"]
    for number in range(graph.count):
        command = first if number == 0 else f"true {number}{mark}"
        deps = ", ".join(f"s{other}" for other in graph.before(number))
        more = (f", deps: {deps}" if deps else "") + (", cache: {enable: true}" if cache else "")
        lines.append(f"  s{number}: {{command: '{command}'{more}}}")
    return "\n".join(lines) + "\n"


def create(server: Server, text: str) -> str:
    raw = base64.b64encode(text.encode()).decode()
    run: str = server.call("POST", "/run", {"runYamlRaw": raw})["runID"]
    return run


def wait(server: Server, run: str) -> None:
    """Until the run has ended; RuntimeError unless it succeeded."""
    server.stream(f"/run/{run}/events", after=NO_EVENT)
    row = server.call("GET", "/run", runFilter=run)["runList"][0]
    if row["status"] != "succeeded":
        raise RuntimeError(f"{run} is {row['status']}: {row['runMsg']}")


def ours(server: Server, text: str) -> float:
    """Seconds from the request to the end of the run."""
    began = time.perf_counter()
    wait(server, create(server, text))
    return time.perf_counter() - began


def beside_peers(bench: Bench, folder: Path, count: int, links: int, rounds: int) -> None:
    parallel = f"{count} parallel one-line steps"
    for figure, graph, peers in (
        (parallel, Graph(count), ["make -j2", *PEERS]),
        (f"{parallel}, 20 at a time", Graph(count, width=20), ["make -j20"]),
        (f"chain of {links} one-line steps", Graph(links, chain=True), ["make -j2", *PEERS]),
    ):
        with Server(graph.width) as server:
            ours(server, document(Graph(20)))
            mine = [ours(server, document(graph)) for _ in range(rounds)]
        for peer in peers:
            theirs = measured(bench, peer, graph, 1 if bench.quick and peer in PEERS else rounds, folder)
            if theirs is not None:
                bench.figure(figure, "s", mine, peer, theirs, len(theirs))


def cached(bench: Bench, count: int, rounds: int) -> None:
    text = document(Graph(count), cache=True)
    with Server(2) as server:
        ours(server, text)
        found = []
        for _ in range(rounds):
            run = create(server, text)
            spent = server.cpu_seconds(server.pid)
            wait(server, run)
            found.append(server.cpu_seconds(server.pid) - spent)
    bench.goal(f"{count} steps, all cached: engine time", "s", found, 0.1 * count / 1000)


def with_artifacts(bench: Bench, count: int, rounds: int) -> None:
    """Steps as people have them: on a storage, each with a file that it makes and that is hashed; then the same, all cached."""
    head = [
        "name: bench",
        "docker_env: none",
        "parallelism: 20",
        "fs_options: {main_fs: {name: data}}",
        "entry_points:",
    ]
    made, again = [], []
    with Server(2) as server:
        (server.folder / "store").mkdir()
        server.call("POST", "/fs", {"name": "data", "url": f"local://{server.folder / 'store'}"})
        for number in range(rounds):
            more = "artifacts: {output: [out]}, cache: {enable: true}"
            steps = [f"  s{n}: {{command: 'echo {number} {n} > {{{{out}}}}', {more}}}" for n in range(count)]
            text = "\n".join([*head, *steps]) + "\n"
            made.append(ours(server, text))
            again.append(ours(server, text))
    bench.figure(f"{count} steps that each make an artifact on a storage", "s", made)
    bench.figure(f"{count} such steps, all cached", "s", again)


def first_step(bench: Bench, rounds: int) -> None:
    """From the request to the first step's process telling the time."""
    found = []
    with Server(2) as server:
        ours(server, document(Graph(2)))
        for number in range(rounds):
            mark = server.folder / f"mark-{number}"
            text = document(Graph(1), first=f"date +%s.%N > {mark}.new && mv {mark}.new {mark}")
            began = time.time()
            run = create(server, text)
            wait_for(mark.exists, "the first step", within=60, every=0.002)
            found.append((float(mark.read_text()) - began) * 1000)
            wait(server, run)
    bench.goal("submit to first step running, p50", "ms", found, 30.0)


def growth(bench: Bench, small: int, large: int, rounds: int) -> None:
    """What a step costs in a run that is ten times as long."""
    with Server(2) as server:
        ours(server, document(Graph(20)))
        short = [ours(server, document(Graph(small))) / small * 1000 for _ in range(rounds)]
        long = ours(server, document(Graph(large))) / large * 1000
    bench.figure(f"a step of a run of {large}", "ms", long, f"of a run of {small}", short, 1)


def size(bench: Bench, count: int) -> None:
    """Memory of steps that wait, and the time to the next step after a kill in the middle."""
    with Server(2) as server:
        ours(server, document(Graph(20)))
        before = _memory_anew(server)
        gate = server.folder / "gate"
        hold = f"while [ ! -e {gate} ]; do sleep 0.01; done"
        steps = [f"  s{number}: {{command: 'true {number}', deps: hold}}" for number in range(count)]
        head = ["name: bench", "docker_env: none", "parallelism: 20", "entry_points:", f"  hold: {{command: '{hold}'}}"]
        run = create(server, "\n".join([*head, *steps]) + "\n")
        wait_for(
            lambda: server.call("GET", "/job", status="running", maxKeys=1)["jobList"], "its first step", within=120
        )
        whole = server.memory(server.pid)
        engine = _memory_anew(server)
        bench.goal("memory a step in the engine", "KiB", (engine - before) * 1024 / count, 2.0, count)
        bench.figure(
            "memory a step in a server that read its document", "KiB", (whole - before) * 1024 / count, n=count
        )
        gate.touch()
        wait_for(lambda: _begun_jobs(server) > count // 2, "half of the steps", within=900, every=0.2)
        server.kill()
        known = _begun_jobs(server)
        began = time.perf_counter()
        server.start()
        wait_for(lambda: _begun_jobs(server) > known, "the next step", within=120, every=0.01)
        bench.goal(f"{count} steps half done: kill -9 to the next step", "s", time.perf_counter() - began, 1.0, count)
        wait(server, run)


def _memory_anew(server: Server) -> float:
    """MiB of a server that has just taken up what there is: nothing is left in it of reading documents and answering."""
    server.stop()
    server.start()
    return server.memory(server.pid)


def _begun_jobs(server: Server) -> int:
    return sum(1 for _ in server.data.glob("jobs/*/*"))


def main() -> None:
    bench = begin("pipelines", __doc__ or "")
    count, links, rounds = (100, 20, 3) if bench.quick else (1000, 50, 5)
    with tempfile.TemporaryDirectory(prefix="paddleflow-bench-peers-") as folder:
        beside_peers(bench, Path(folder), count, links, rounds)
    first_step(bench, 5 if bench.quick else 30)
    cached(bench, count, rounds)
    with_artifacts(bench, count, 3)
    growth(bench, count, 10 * count, rounds)
    size(bench, 500 if bench.quick else 10_000)
    bench.finish()


if __name__ == "__main__":
    main()
