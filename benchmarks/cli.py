"""The command line as a person meets it: how long a command takes, beside those of other tools, how long 200 MB of code with one
changed file take to be delivered, and whether watching a large run through a pipe takes longer than the run.
"""

from __future__ import annotations

import base64
import compileall
import os
import random
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import paddleflow
from benchmarks.harness import Bench, begin, timed
from benchmarks.ours import COMMAND, Server
from benchmarks.peers import CACHE, NotMeasured, python_of

MEGABYTES = 200
FILE = 100 * 2**10  #: bytes of one file of code
WITHIN = 1.2  #: times the run that watching it may take


def peers(bench: Bench) -> dict[str, list[str]]:
    """The commands of other tools that are at hand or can be installed, which a quick run does not do."""
    found: dict[str, list[str]] = {}
    for words in (["kubectl", "version", "--client"], ["uv", "--version"]):
        word = shutil.which(words[0]) or str(COMMAND.with_name(words[0]))
        if Path(word).exists():
            found[" ".join(words)] = [word, *words[1:]]
    for words in (["prefect", "--version"], ["dstack", "--help"]):
        if bench.quick and not (CACHE / words[0] / "ready").exists():
            bench.note(f"{words[0]} is left out: it is not installed")
            continue
        try:
            found[" ".join(words)] = [str(python_of(words[0]).with_name(words[0])), *words[1:]]
        except NotMeasured as error:
            bench.note(f"{words[0]} is left out: {error}")
    return found


def seconds(command: Sequence[str], env: Mapping[str, str], folder: Path) -> float:
    """How long one call takes; it must succeed."""
    return timed(
        lambda: subprocess.run(command, env=env, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=True)
    )


def latency(bench: Bench, env: Mapping[str, str], folder: Path) -> None:
    rounds = 5 if bench.quick else 7
    own = {
        "--help": [str(COMMAND), "--help"],
        "job list": [str(COMMAND), "job", "list"],
        "job run -- true": [str(COMMAND), "job", "run", "--quiet", "--", "true"],
    }
    others = peers(bench)
    taken: dict[str, list[float]] = {name: [] for name in (*own, *others)}
    for number in range(rounds + 1):  # in turns, so that what else the machine does hits all of them
        for name, command in (own | others).items():
            took = seconds(command, env, folder)
            if number:  # the first call of each reads its files from the disk
                taken[name].append(took * 1000)
    for name in own:
        for other in others:
            bench.figure(name, "ms", taken[name], other, taken[other])


def delivery(bench: Bench, env: Mapping[str, str], folder: Path) -> None:
    """From the call of the command to the id of the job, by a server that does not share the caller's folder."""
    size = 20 if bench.quick else MEGABYTES
    content = random.Random(1)
    for number in range(size * 2**20 // FILE):
        file = folder / f"part-{number // 50}" / f"module_{number}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content.randbytes(FILE))
    code = (
        "import sys, time; from pathlib import Path; from paddleflow.sdk.client import connect; client = connect();"
        " began = time.perf_counter(); client.code.reference(Path(sys.argv[1]), snapshot=True);"
        " print(time.perf_counter() - began)"
    )
    python = str(COMMAND.with_name("python"))

    def deliver() -> float:
        words = [python, "-c", code, str(folder)]
        return float(subprocess.run(words, env=env, capture_output=True, check=True, text=True).stdout)

    first = deliver()
    again = []
    for number in range(5):
        (folder / "part-0" / f"module_{number}.py").write_bytes(content.randbytes(FILE))
        again.append(deliver())
    bench.figure(f"deliver {size} MB of code, the first time", "s", first)
    bench.goal(f"deliver {size} MB of code, one file changed", "s", again, 1.0)


def watch(bench: Bench, server: Server, env: Mapping[str, str], folder: Path) -> None:
    """`run create --watch` through a pipe, beside the run itself by the server's own clock."""
    steps = 200 if bench.quick else 2000
    lines = [f"  s{number}: {{command: 'true'}}" for number in range(steps)]
    (folder / "run.yaml").write_text("name: wide\nparallelism: 20\nentry_points:\n" + "\n".join(lines) + "\n")
    alone, watched = [], []
    for _ in range(1 if bench.quick else 3):
        began = time.perf_counter()
        made = server.call("POST", "/run", {"runYamlRaw": _encoded(folder / "run.yaml")})["runID"]
        while server.call("GET", f"/run?runFilter={made}")["runList"][0]["status"] not in ("succeeded", "failed"):
            time.sleep(0.02)
        alone.append(time.perf_counter() - began)
        words = [str(COMMAND), "run", "create", "run.yaml", "--watch"]
        watched.append(seconds(words, env, folder))
    bench.figure(f"run of {steps} steps, watched through a pipe", "s", watched, "the same run, not watched", alone)


def _encoded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


def main() -> None:
    bench = begin("cli", __doc__ or "")
    # An installed package has its bytecode; a checkout with PYTHONDONTWRITEBYTECODE would be compiled at every call.
    compileall.compile_dir(Path(paddleflow.__file__).parent, quiet=1)
    with Server(2) as server, tempfile.TemporaryDirectory() as name:
        env = {**os.environ, "PADDLEFLOW_SERVER": server.url, "PADDLEFLOW_TOKEN": server.token}
        env["PADDLEFLOW_HOME"] = f"{name}/home"
        for part in ("project", "code", "run"):
            Path(name, part).mkdir()
        latency(bench, env, Path(name, "project"))
        delivery(bench, env, Path(name, "code"))
        watch(bench, server, env, Path(name, "run"))
    bench.finish()


if __name__ == "__main__":
    main()
