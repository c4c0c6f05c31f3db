"""Debian's Slurm on loopback, as the peer of our jobs: brought up in a temporary folder, measured, taken down again.

Needs root and the packages ``slurm-wlm`` and ``munge``. Two configurations: ``default`` changes nothing about scheduling,
``tuned`` removes the delays that Slurm adds by design (`TUNED`). Both declare 64 processors whatever the machine has,
because Slurm starts at most one round of batch jobs a second: with the true two of a small machine it would run two jobs a
second, and we want to race it at its best. Nothing is left behind: every process started here is ended by its id.

Slurm's loop takes batch jobs up once a second, so the delay depends on when within that second one submits. The rounds
wait a random part of a second first, which gives the honest spread. ``srun`` does not go through that loop, so it is
measured too: it is Slurm's quickest way to a running process, for one who stays and waits.
"""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from benchmarks.harness import Bench, begin, percentile, timed, wait_for

SLOTS = 64

DEFAULT = ""
TUNED = (
    "SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,sched_max_job_start=0,bf_interval=1"
)
CONFIGURATIONS: Mapping[str, str] = {"default": DEFAULT, "tuned": TUNED}

_CONFIGURATION = """\
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
SlurmctldPort={controller}
SlurmdPort={node}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
MaxJobCount=200000
{scheduling}
NodeName={host} NodeAddr=127.0.0.1 CPUs={slots} State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


class NotHere(RuntimeError):
    """Slurm cannot run on this machine; the message says exactly why."""


class Slurm:
    """A Slurm of one node, for the length of a ``with``."""

    def __init__(self, scheduling: str) -> None:
        self._scheduling = scheduling
        self._processes: list[tuple[str, subprocess.Popen[bytes]]] = []
        self.folder = Path()
        self._env: dict[str, str] = {}

    def __enter__(self) -> Slurm:
        missing = [name for name in ("munged", "slurmctld", "slurmd", "sbatch") if not shutil.which(name)]
        if missing:
            raise NotHere(f"not installed: {', '.join(missing)} (Debian: apt-get install slurm-wlm munge)")
        if os.geteuid() != 0:
            raise NotHere("slurmd starts jobs as other users, so it needs root")
        self.folder = Path(tempfile.mkdtemp(prefix="paddleflow-slurm-"))
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if any(name == "slurmd" for name, _ in self._processes):
            self.run("scancel", "--user=root", check=False)
            wait_for(lambda: not self.queue(), "the end of Slurm's last jobs", within=30)
        for _, process in reversed(self._processes):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self) -> None:
        self.folder.chmod(0o755)  # munged refuses a folder that others may write
        for name in ("munge", "state", "spool"):
            (self.folder / name).mkdir(mode=0o755)
        key = self.folder / "munge" / "key"
        key.touch(0o600)
        key.write_bytes(os.urandom(128))
        host = socket.gethostname().split(".")[0]
        controller, node = _free_ports(2)
        (self.folder / "slurm.conf").write_text(
            _CONFIGURATION.format(
                host=host,
                folder=self.folder,
                controller=controller,
                node=node,
                slots=SLOTS,
                scheduling=self._scheduling,
            )
        )
        self._env = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}
        munge = self.folder / "munge"
        self._spawn(
            "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={munge}/socket",
            f"--pid-file={munge}/pid", f"--log-file={munge}/log", f"--seed-file={munge}/seed",
        )  # fmt: skip
        self._wait_for(lambda: (munge / "socket").exists(), "munged's socket")
        self._spawn("slurmctld", "-D", "-i")
        self._spawn("slurmd", "-D")
        self._wait_for(lambda: self.run("sinfo", "-h", "-o", "%T", check=False).strip() == "idle", "an idle node")

    def _spawn(self, *command: str) -> None:
        log = (self.folder / f"{command[0]}.log").open("wb")
        process = subprocess.Popen(command, env=self._env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        log.close()
        self._processes.append((command[0], process))

    def _wait_for(self, condition: Callable[[], bool], what: str) -> None:
        def ready() -> bool:
            for name, process in self._processes:
                if process.poll() is not None:
                    tail = (self.folder / f"{name}.log").read_text(errors="replace")[-1500:]
                    raise NotHere(f"{name} ended with {process.returncode} before {what}:\n{tail}")
            return condition()

        try:
            wait_for(ready, what, within=30, every=0.05)
        except TimeoutError as error:
            tail = (self.folder / "slurmctld.log").read_text(errors="replace")[-1500:]
            raise NotHere(f"{error}; slurmctld said:\n{tail}") from error

    def run(self, *command: str, check: bool = True) -> str:
        """The standard output of one of Slurm's commands."""
        return subprocess.run(command, env=self._env, check=check, capture_output=True, text=True).stdout

    def queue(self) -> int:
        """How many jobs have not ended."""
        return len(self.run("squeue", "-h", "-o", "%i", check=False).split())

    def settle(self) -> None:
        """Until nothing runs or waits."""
        wait_for(lambda: not self.queue(), "an empty queue", within=600, every=0.05)

    def script(self, name: str, body: str) -> str:
        file = self.folder / name
        file.write_text(f"#!/bin/sh\n{body}\n")
        file.chmod(0o755)
        return str(file)

    # ---- what is measured -------------------------------------------------------------------------------------------

    def batch_delay(self) -> float:
        """Seconds from calling sbatch to the job's first process telling the time, on an idle node."""
        mark = self.folder / "started"
        mark.unlink(missing_ok=True)
        script = self.script("mark", f"date +%s.%N > {mark}.new && mv {mark}.new {mark}")
        time.sleep(random.random())  # any part of Slurm's second, see above
        submitted = time.time()
        self.run("sbatch", "-o", "/dev/null", script)
        wait_for(mark.exists, "the job", within=60, every=0.002)
        self.settle()
        return float(mark.read_text()) - submitted

    def direct_delay(self) -> float:
        """The same by srun."""
        submitted = time.time()
        started = float(self.run("srun", "-n1", "date", "+%s.%N"))
        self.settle()
        return started - submitted

    def array(self, jobs: int) -> float:
        """Seconds for `jobs` jobs of ``true`` submitted as one array, from sbatch to an empty queue."""
        script = self.script("true", "true")

        def act() -> None:
            self.run("sbatch", "-o", "/dev/null", f"--array=1-{jobs}", script)
            self.settle()

        return timed(act)

    def singly(self, jobs: int, at_once: int = 4) -> tuple[float, float]:
        """The same by one sbatch per job, several at a time; also the seconds until the last one was accepted."""
        script = self.script("true", "true")
        began = time.perf_counter()
        self.run("sh", "-c", f"seq {jobs} | xargs -P {at_once} -I + sbatch -o /dev/null {script}")
        accepted = time.perf_counter() - began
        self.settle()
        return time.perf_counter() - began, accepted


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


def measure(bench: Bench, slurm: Slurm, name: str, delays: int, jobs: int, rounds: int) -> None:
    """Slurm alone; `benchmarks.jobs` puts ours beside it."""
    batch = [slurm.batch_delay() for _ in range(delays)]
    direct = [slurm.direct_delay() for _ in range(delays)]
    for share in (0.5, 0.99):
        for way, values in (("sbatch", batch), ("srun", direct)):
            figure = f"{way} to running, {name}, p{share * 100:.0f}"
            bench.figure(figure, "ms", None, "Slurm", percentile(values, share) * 1000, delays)
    array = [jobs / slurm.array(jobs) for _ in range(rounds)]
    bench.figure(f"{jobs} jobs of true in one array, {name}", "jobs/s", None, "Slurm", array)
    singly = [slurm.singly(jobs) for _ in range(rounds)]
    whole, accepted = [jobs / each for each, _ in singly], [jobs / each for _, each in singly]
    bench.figure(f"{jobs} jobs of true by sbatch each, {name}", "jobs/s", None, "Slurm", whole)
    bench.figure(f"sbatch accepted, {name}", "submits/s", None, "Slurm", accepted)


def main() -> None:
    bench = begin("slurm", __doc__.split("\n\n")[0])
    delays, jobs, rounds = (5, 100, 1) if bench.quick else (30, 1000, 5)
    for name, scheduling in CONFIGURATIONS.items():
        bench.note(f"bringing up Slurm, {name}")
        try:
            with Slurm(scheduling) as slurm:
                measure(bench, slurm, name, delays, jobs, rounds)
        except NotHere as error:
            bench.note(f"Slurm cannot run here: {error}")
            raise SystemExit(1) from error
    bench.finish()


if __name__ == "__main__":
    main()
