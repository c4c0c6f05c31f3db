"""Other workflow tools, each in an environment of its own, given the same one-line steps.

Environments are made once, in the user's cache folder, from pinned versions. A peer that cannot be installed here is left out,
and said so. Each tool counts from its start to its end, except Ray, whose cluster is up before the clock begins, as our server
is. The bare spawn loop is no tool: it is what the processes themselves take. Flyte runs the tasks of a local workflow one after
another, whatever it is told.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Bench, timed

CACHE = Path.home() / ".cache" / "paddleflow" / "peers"
VERSIONS = {
    "doit": "doit==0.36.0",
    "luigi": "luigi==3.6.0",
    "snakemake": "snakemake==8.30.0",
    "flyte": "flytekit==1.16.31",
    "ray": "ray==2.60.0",
    "prefect": "prefect==3.8.8",
    "dstack": "dstack==0.22.5",
    "juicefs": "juicefs==0.0.4",
}
PATIENCE = 60.0  #: seconds after which a peer is not measured once more
LONGEST = 300.0  #: seconds that one round of a peer may take
INSTALLING = 900.0  #: seconds that its installation may take


@dataclass(frozen=True, slots=True)
class Graph:
    """Steps with their commands, what each waits for, and how many may run at once."""

    count: int
    chain: bool = False
    width: int = 2

    def before(self, number: int) -> Sequence[int]:
        return (number - 1,) if self.chain and number else ()


class NotMeasured(Exception):
    """The peer cannot be had or does not run on this machine."""


def python_of(peer: str) -> Path:
    """The interpreter of a peer's environment, which is made if it is missing or of another version."""
    folder = CACHE / peer
    python, ready = folder / "bin" / "python", folder / "ready"
    if not ready.exists() or ready.read_text() != VERSIONS[peer]:
        shutil.rmtree(folder, ignore_errors=True)
        CACHE.mkdir(parents=True, exist_ok=True)
        uv = str(
            Path(sys.executable).with_name("uv")
        )  # pip takes minutes to choose the versions that some of them need
        install = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python), VERSIONS[peer]]
        for command in ([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], install):
            _call(command, CACHE, INSTALLING, dict(os.environ))  # which may say where packages come from
        ready.write_text(VERSIONS[peer])
    return python


def make(graph: Graph, folder: Path) -> float:
    """``make -j``, each step with a log of its own."""
    if shutil.which("make") is None:
        raise NotMeasured("make is not on the path")
    names = " ".join(f"s{number}" for number in range(graph.count))
    lines = [f".PHONY: all {names}", f"all: {names}"]
    for number in range(graph.count):
        deps = " ".join(f"s{other}" for other in graph.before(number))
        lines.append(f"s{number}: {deps}\n\t@true {number} > {folder}/{number}.log 2>&1")
    (folder / "Makefile").write_text("\n".join(lines) + "\n")
    return _timed(["make", "-s", f"-j{graph.width}", "-C", str(folder), "all"], folder)


_BARE = """
import os, sys
folder, count, width = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
null, running = os.open('/dev/null', os.O_RDWR), 0
for n in range(count):
    if running == width:
        os.wait()
        running -= 1
    os.makedirs(f'{folder}/{n}/work')
    log = os.open(f'{folder}/{n}.log', os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    streams = [(os.POSIX_SPAWN_DUP2, null, 0), (os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)]
    os.posix_spawn('/bin/sh', ['sh', '-c', f'true {n}'], os.environ, file_actions=streams, setsid=True)
    os.close(log)
    running += 1
while running:
    os.wait()
    running -= 1
"""


def bare(graph: Graph, folder: Path) -> float:
    """The processes alone, each with a folder and a log: a loop that keeps no state, the least that any Python could take."""
    width = 1 if graph.chain else graph.width
    return _timed([sys.executable, "-I", "-S", "-c", _BARE, str(folder), str(graph.count), str(width)], folder)


def doit(graph: Graph, folder: Path) -> float:
    text = ["def task_s():", f"    for n in range({graph.count}):"]
    waits = "[f's:{n - 1}'] if n else []" if graph.chain else "[]"
    text.append(f"        yield {{'name': str(n), 'actions': [f'true {{n}} > {{n}}.log 2>&1'], 'task_dep': {waits}}}")
    (folder / "dodo.py").write_text("\n".join(text) + "\n")
    return _timed([str(python_of("doit")), "-m", "doit", "-n", str(graph.width), "-v", "0"], folder)


def luigi(graph: Graph, folder: Path) -> float:
    waits = "S(self.n - 1) if self.n else []" if graph.chain else "[]"
    (folder / "tasks.py").write_text(
        "import luigi, subprocess\n"
        "class S(luigi.Task):\n"
        "    n = luigi.IntParameter()\n"
        f"    def requires(self): return {waits}\n"
        "    def output(self): return luigi.LocalTarget(f'{self.n}.log')\n"
        "    def run(self): subprocess.run(f'true {self.n} > {self.n}.log 2>&1', shell=True, check=True)\n"
        "class All(luigi.WrapperTask):\n"
        f"    def requires(self): return [S(n) for n in range({graph.count})]\n"
        "if __name__ == '__main__':\n"
        f"    luigi.build([All()], workers={graph.width}, local_scheduler=True, log_level='ERROR')\n"
    )
    return _timed([str(python_of("luigi")), "tasks.py"], folder)


def snakemake(graph: Graph, folder: Path) -> float:
    waits = "    input: lambda w: [f'{int(w.n) - 1}.log'] if int(w.n) else []\n" if graph.chain else ""
    (folder / "Snakefile").write_text(
        f"rule all:\n    input: expand('{{n}}.log', n=range({graph.count}))\n"
        f"rule s:\n{waits}    output: '{{n}}.log'\n    shell: 'true {{wildcards.n}} > {{output}} 2>&1'\n"
    )
    return _timed([str(python_of("snakemake")), "-m", "snakemake", f"-j{graph.width}", "--quiet", "all"], folder)


def flyte(graph: Graph, folder: Path) -> float:
    before = "done" if graph.chain else "0"
    (folder / "flow.py").write_text(
        "import subprocess\n"
        "from flytekit import task, workflow\n"
        "@task\n"
        "def s(n: int, before: int) -> int:\n"
        "    subprocess.run(f'true {n} > {n}.log 2>&1', shell=True, check=True)\n"
        "    return n\n"
        "@workflow\n"
        "def flow() -> None:\n"
        "    done = 0\n"
        f"    for n in range({graph.count}): done = s(n=n, before={before})\n"
        "if __name__ == '__main__': flow()\n"
    )
    return _timed([str(python_of("flyte")), "flow.py"], folder)


def ray(graph: Graph, folder: Path) -> float:
    before = "done[-1] if done else None" if graph.chain else "None"
    (folder / "tasks.py").write_text(
        "import ray, subprocess, time\n"
        f"ray.init('local', num_cpus={graph.width}, include_dashboard=False, logging_level='ERROR', log_to_driver=False)\n"
        "@ray.remote\n"
        f"def s(n, before): subprocess.run(f'true {{n}} > {folder}/{{n}}.log 2>&1', shell=True, check=True)\n"
        f"ray.get([s.remote('warm', None) for _ in range({graph.width})])\n"
        "began, done = time.perf_counter(), []\n"
        f"for n in range({graph.count}): done.append(s.remote(n, {before}))\n"
        "ray.get(done)\n"
        "print(time.perf_counter() - began)\n"
    )
    return float(_call([str(python_of("ray")), "tasks.py"], folder).split()[-1])


def _timed(command: list[str], folder: Path) -> float:
    return timed(lambda: _call(command, folder))


def _call(command: list[str], folder: Path, within: float = LONGEST, env: dict[str, str] | None = None) -> str:
    """What a command says, in an environment that is the same everywhere or in `env`; `NotMeasured` with its last words."""
    env = env or {
        "PATH": os.defpath + ":/usr/local/bin",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    try:
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=within, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotMeasured(str(error)) from error
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise NotMeasured(f"{command[0]} ended with {done.returncode}: {words[-1] if words else 'without a word'}")
    return done.stdout


PEERS: dict[str, Callable[[Graph, Path], float]] = {
    "bare spawn loop": bare,
    "doit": doit,
    "luigi": luigi,
    "snakemake": snakemake,
    "flyte local": flyte,
    "ray": ray,
}


def measured(bench: Bench, peer: str, graph: Graph, rounds: int, folder: Path) -> list[float] | None:
    """Seconds of some rounds, of fewer if they take long; None when the peer cannot be measured."""
    run = PEERS.get(peer, make)
    found: list[float] = []
    while len(found) < rounds and sum(found) < PATIENCE:
        place = folder / f"{run.__name__}-{graph.count}-{graph.width}-{len(found)}"
        place.mkdir(parents=True)
        try:
            found.append(run(graph, place))
            logs = sum(1 for _ in place.glob("[0-9]*.log"))
            if logs < graph.count:
                raise NotMeasured(f"it ran {logs} of {graph.count} steps")
        except NotMeasured as error:
            bench.note(f"{peer} is left out: {error}")
            return None
    return found
