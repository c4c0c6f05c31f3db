"""Other workflow tools, each in an environment of its own, given the same one-line steps.

Environments are made once, in the user's cache folder, from pinned versions. A peer that cannot be installed here is left out,
and said so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Bench, timed

CACHE = Path.home() / ".cache" / "paddleflow" / "peers"
VERSIONS = {"doit": ["doit==0.36.0"], "luigi": ["luigi==3.6.0"], "snakemake": ["snakemake==8.30.0"]}


@dataclass(frozen=True, slots=True)
class Graph:
    """Steps with their commands, and what each waits for."""

    count: int
    chain: bool = False

    def before(self, number: int) -> Sequence[int]:
        return (number - 1,) if self.chain and number else ()


class NotInstalled(Exception):
    """The peer cannot be had on this machine."""


def python_of(peer: str) -> Path:
    """The interpreter of a peer's environment, which is made if it is missing."""
    folder = CACHE / peer
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        try:
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True)
            install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *VERSIONS[peer]]
            subprocess.run(install, check=True, capture_output=True, timeout=300)
        except (OSError, subprocess.SubprocessError) as error:
            raise NotInstalled(f"{peer}: {error}") from error
        (folder / "ready").touch()
    return python


def make(graph: Graph, folder: Path) -> float:
    """``make -j2``, each step with a log of its own."""
    if shutil.which("make") is None:
        raise NotInstalled("make is not on the path")
    names = " ".join(f"s{number}" for number in range(graph.count))
    lines = [f".PHONY: all {names}", f"all: {names}"]
    for number in range(graph.count):
        deps = " ".join(f"s{other}" for other in graph.before(number))
        lines.append(f"s{number}: {deps}\n\t@true {number} > {folder}/{number}.log 2>&1")
    (folder / "Makefile").write_text("\n".join(lines) + "\n")
    return _run(["make", "-s", "-j2", "-C", str(folder), "all"], folder)


def doit(graph: Graph, folder: Path) -> float:
    text = ["def task_s():", f"    for n in range({graph.count}):"]
    waits = "[f's:{n - 1}'] if n else []" if graph.chain else "[]"
    text.append(f"        yield {{'name': str(n), 'actions': [f'true {{n}} > {{n}}.log 2>&1'], 'task_dep': {waits}}}")
    (folder / "dodo.py").write_text("\n".join(text) + "\n")
    return _run([str(python_of("doit")), "-m", "doit", "-n", "2", "-v", "0"], folder)


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
        "if __name__ == '__main__': luigi.build([All()], workers=2, local_scheduler=True, log_level='ERROR')\n"
    )
    return _run([str(python_of("luigi")), "tasks.py"], folder)


def snakemake(graph: Graph, folder: Path) -> float:
    waits = "    input: lambda w: [f'{int(w.n) - 1}.log'] if int(w.n) else []\n" if graph.chain else ""
    (folder / "Snakefile").write_text(
        f"rule all:\n    input: expand('{{n}}.log', n=range({graph.count}))\n"
        f"rule s:\n{waits}    output: '{{n}}.log'\n    shell: 'true {{wildcards.n}} > {{output}} 2>&1'\n"
    )
    return _run([str(python_of("snakemake")), "-m", "snakemake", "-j2", "--quiet", "all"], folder)


def _run(command: list[str], folder: Path) -> float:
    env = {"PATH": os.defpath + ":/usr/local/bin", "HOME": str(folder), "LANG": "C.UTF-8"}

    def act() -> None:
        subprocess.run(command, cwd=folder, env=env, check=True, capture_output=True, timeout=600)

    return timed(act)


PEERS = {"make -j2": make, "doit": doit, "luigi": luigi, "snakemake": snakemake}


def measured(bench: Bench, peer: str, graph: Graph, rounds: int, folder: Path) -> list[float] | None:
    """Seconds of some rounds; None when the peer is not here."""
    found = []
    for number in range(rounds):
        place = folder / f"{peer.split()[0]}-{graph.count}-{number}"
        place.mkdir(parents=True)
        try:
            found.append(PEERS[peer](graph, place))
        except (NotInstalled, subprocess.SubprocessError) as error:
            bench.note(f"{peer} is left out: {error}")
            return None
    return found
