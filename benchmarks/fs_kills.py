"""Random kills of a mount with write-back while programs write: what they had fsynced is there afterwards, and nothing is a mixture.

Threads write versions of their files, in three ways: the file is truncated and written again, a new one is written beside it and renamed over
it, or a line is appended. A version says of which file it is, its number and its size, and the rest follows from these, so a
mixture is recognized. Sizes are from a line to several parts of an upload. Meanwhile, at random moments, the worker is killed with SIGKILL (it is replaced:
no program may see an error), or supervisor and worker are (the mount is dead: it is mounted again with the same cache folder), or the
store is stopped for a moment before that. After each such remount every file is read through the mount, and at the end in
the store: *lost* is a version older than the last one whose fsync returned (and a file that is not there), *mixed* is content that is no version at all.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness import Bench, begin, percentile, timed, wait_for
from paddleflow.errors import PaddleFlowError
from paddleflow.objects.s3 import Bucket, S3Store
from scripts.lib.mounts import Mount, mounted
from scripts.lib.s3_servers import KEYS, S3Server, seaweedfs

FAULTS = ("worker", "both", "away")
WRITERS = 4
FILES = 6  #: of each writer
SIZES = (60, 5_000, 70_000, 1_000_000, 20_000_000)
LIKELY = (40, 30, 20, 9, 1)
LONGEST_PAUSE = 1.5  #: seconds between two faults
LONGEST_START = 60.0  #: seconds that a worker may take until it answers, after another was killed
LOG_STEPS = 20  #: faults between two notes


def content(name: str, version: int) -> bytes:
    """A version of a file: whoever has a part of it knows all of it."""
    chosen = random.Random(f"{name} {version}")
    size = chosen.choices(SIZES, LIKELY)[0]
    return b"%s %d\n" % (name.encode(), version) + chosen.randbytes(size)


def line(version: int) -> bytes:
    return b"%015d\n" % version


def version_of(name: str, found: bytes) -> int:
    """The number of the version that this is; -1 for a mixture."""
    if name.endswith(".log"):
        version = len(found) // len(line(0))
        return version if found == b"".join(map(line, range(1, version + 1))) else -1
    if not found:
        return 0
    head = found[:40].split(b"\n", 1)[0].split()
    if len(head) != 2 or head[0] != name.encode() or not head[1].isdigit():
        return -1
    version = int(head[1])
    return version if content(name, version) == found else -1


@dataclass(slots=True)
class File:
    """What was done to one file."""

    name: str
    begun: int = 0  #: the last version that a program began to write
    synced: int = 0  #: the last one whose fsync and, if so, rename returned

    def judge(self, found: bytes | None) -> tuple[str, str]:
        """What is wrong with what was found, as a word and a sentence; two empty ones if nothing is."""
        if found is None:
            self.begun = self.synced  # a log that was never made begins with its first line
            return ("lost", f"{self.name} is gone, {self.synced} was synced") if self.synced else ("", "")
        version = version_of(self.name, found)
        if version < 0:
            return "mixed", f"{self.name}: {len(found)} bytes that begin {found[:40]!r} are no version"
        if not self.synced <= version <= self.begun:
            return "lost", f"{self.name} has {version}, synced {self.synced}, begun {self.begun}"
        self.begun = self.synced = version
        return "", ""


@dataclass(slots=True)
class Verdict:
    """What is wrong, in words, and what was counted."""

    wrong: list[tuple[str, str]] = field(default_factory=list)  #: lost, mixed or error, and a sentence
    faults: Counter[str] = field(default_factory=Counter)
    versions: int = 0  #: that were fsynced
    seconds: float = 0.0  #: that programs wrote and faults were made
    read: int = 0  #: files that were read and judged after a remount
    remounts: list[float] = field(default_factory=list)  #: seconds, uploads of what was left included

    def count(self, word: str) -> float:
        return float(sum(1 for each, _ in self.wrong if each == word))


class Programs:
    """Threads that write, until they are told to end. They rest while the mount is dead."""

    def __init__(self, top: Path, verdict: Verdict, seed: int) -> None:
        self.files: list[File] = []
        self._top, self._verdict = top, verdict
        self._changed = threading.Condition()
        self._crashes = self._active = 0
        self._open, self._ended = False, False
        self._threads = []
        for number in range(WRITERS):
            names = [f"{number}-{each}{'.log' if each == 0 else ''}" for each in range(FILES)]
            mine = [File(name) for name in names]
            self.files += mine
            self._threads.append(threading.Thread(target=self._run, args=(mine, random.Random(f"{seed} {number}"))))
            self._threads[-1].start()

    def let_work(self) -> None:
        with self._changed:
            self._open = True
            self._changed.notify_all()

    def expect_crash(self) -> None:
        """From now on errors are nobody's fault, and nothing new is begun."""
        with self._changed:
            self._crashes += 1
            self._open = False

    def wait_until_idle(self) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: self._active == 0, 120):
                raise TimeoutError("programs hang")

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(120)

    def _run(self, files: list[File], chosen: random.Random) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._open or self._ended)
                if self._ended:
                    return
                self._active += 1
                crashes = self._crashes
            file = chosen.choice(files)
            try:
                self._write(file, chosen.random() < 0.5)
            except OSError as error:
                if crashes == self._crashes:
                    self._verdict.wrong.append(("error", f"{file.name}: {error}"))
                    return
            except BaseException as error:
                self._verdict.wrong.append(("error", f"{file.name}: {error!r}"))
                return
            finally:
                with self._changed:
                    self._active -= 1
                    self._changed.notify_all()

    def _write(self, file: File, replace: bool) -> None:
        path = self._top / file.name
        version = file.begun + 1
        if file.name.endswith(".log"):
            file.begun = version
            write_synced(path, line(version), os.O_APPEND)
        else:
            if file.synced:
                wrong = file.judge(path.read_bytes())
                if wrong[0]:
                    raise ValueError(wrong[1])
            file.begun = version
            target = path.with_suffix(".new") if replace else path
            write_synced(target, content(file.name, version), os.O_TRUNC)
            if replace:
                target.rename(path)
        file.synced = version
        self._verdict.versions += 1


def write_synced(path: Path, data: bytes, flags: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | flags, 0o644)
    try:
        for at in range(0, len(data), 1 << 20):
            os.write(fd, data[at : at + (1 << 20)])
        os.fsync(fd)
    finally:
        os.close(fd)


class Run:
    """One mount, its programs, and what happens to it."""

    def __init__(self, bench: Bench, server: S3Server, mount: Mount, store: S3Store, seed: int) -> None:
        self._bench, self._server, self._mount, self._store = bench, server, mount, store
        self._random = random.Random(seed)
        self._supervisor = mount.stats()["pid"]
        self.verdict = Verdict()
        self._programs = Programs(mount.folder, self.verdict, seed)

    def run(self, seconds: float) -> Verdict:
        began, done = time.monotonic(), 0
        self._programs.let_work()
        try:
            while time.monotonic() < began + seconds and not self.verdict.wrong:
                time.sleep(self._random.random() * LONGEST_PAUSE)
                fault = FAULTS[done % len(FAULTS)] if done < len(FAULTS) else self._random.choice(FAULTS)
                self.verdict.faults[fault] += self._do(fault)
                done += 1
                if done % LOG_STEPS == 0:
                    self._bench.note(f"{dict(self.verdict.faults)}, {self.verdict.versions} versions")
        except TimeoutError as error:
            self.verdict.wrong.append(("error", str(error)))
        finally:
            self.verdict.seconds = time.monotonic() - began
            self._programs.end()
        if self.verdict.wrong:  # what the store has now would be judged a second time
            for log in self._mount.logs():
                self._bench.note(log)
            return self.verdict
        self._mount.umount()
        self._judge({file.name: self._stored(file.name) for file in self._programs.files})
        names = sorted(entry.key for entry in self._store.list_entries())
        self.verdict.wrong += [("mixed", f"{name} in the store") for name in names if ".conflict-" in name]
        return self.verdict

    def _do(self, fault: str) -> bool:
        """Whether something was killed."""
        if fault == "worker":
            try:
                os.kill(self._mount.stats()["worker"], signal.SIGKILL)
            except (PaddleFlowError, ProcessLookupError):  # it is being replaced already
                return False
            return True
        if fault == "away":
            self._server.process.send_signal(signal.SIGSTOP)
            time.sleep(self._random.random() / 2)
        try:
            self._kill_both()
        finally:
            if fault == "away":
                self._server.process.send_signal(signal.SIGCONT)
        self._programs.wait_until_idle()
        self._mount.umount()
        self.verdict.remounts.append(timed(lambda: self._mount.mount(*self._mount.options)))
        self._judge({file.name: self._seen(file.name) for file in self._programs.files})
        self._programs.let_work()
        return True

    def _kill_both(self) -> None:
        found: dict[str, int] = {}

        def ask() -> bool:
            with suppress(PaddleFlowError):
                found.update(self._mount.stats())
            return bool(found)

        try:
            wait_for(ask, "a worker that answers", LONGEST_START)
        except TimeoutError:
            pids = [each for each in (self._supervisor, *children_of(self._supervisor)) if is_running(each)]
            self._bench.note(explain(pids))
            self._programs.expect_crash()
            kill_all(pids)  # programs wait for an answer
            raise
        self._supervisor = found["pid"]
        self._programs.expect_crash()
        kill_all([found["pid"], found["worker"]])
        wait_for(lambda: not any(is_running(found[each]) for each in ("pid", "worker")), "the end of the processes")

    def _judge(self, found: dict[str, bytes | None]) -> None:
        for file in self._programs.files:
            self.verdict.read += 1
            word, sentence = file.judge(found[file.name])
            if word:
                self.verdict.wrong.append((word, sentence))

    def _seen(self, name: str) -> bytes | None:
        try:
            return (self._mount.folder / name).read_bytes()
        except FileNotFoundError:
            return None

    def _stored(self, name: str) -> bytes | None:
        try:
            return self._store.read(name, size=1 << 30)
        except PaddleFlowError:
            return None


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def children_of(pid: int) -> list[int]:
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def kill_all(pids: Sequence[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def explain(pids: Sequence[int]) -> str:
    """What the processes of a mount do; each writes the stacks of its threads to its log, too."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGUSR1)
    time.sleep(1)
    return "\n".join([f"load {os.getloadavg()}", *map(state_of, pids)])


def state_of(pid: int) -> str:
    """Of each thread: its state, where it waits in the kernel, and how long it ran and waited for a processor."""
    lines = [f"process {pid}"]
    for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
        with suppress(OSError):
            ran, waited, _ = (task / "schedstat").read_text().split()
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            where = (task / "wchan").read_text()
            lines.append(f"  {task.name} {state} {where}, ran {int(ran) / 1e9:.2f} s, waited {int(waited) / 1e9:.2f} s")
    return "\n".join(lines)


@contextmanager
def mount_of(bucket: Bucket, cache: Path) -> Iterator[Mount]:
    access = ["--endpoint", bucket.endpoint, "--access-key", KEYS.access_key, "--secret-key", KEYS.secret_key]
    options = (*access, "--cache-dir", str(cache), "--writeback", "--ttl", "600")
    with mounted(f"s3://{bucket.name}/{bucket.prefix}", *options) as mount:
        mount.options = options
        yield mount


def run_kills(bench: Bench, server: S3Server, seconds: float, seed: int) -> Verdict:
    bucket = server.bucket()
    with (
        tempfile.TemporaryDirectory(prefix="pf-kills-") as cache,
        closing(S3Store(bucket)) as store,
        mount_of(bucket, Path(cache)) as mount,
    ):
        return Run(bench, server, mount, store, seed).run(seconds)


def main() -> None:
    bench = begin("fs_kills", __doc__, numbers={"seconds": 3600.0, "seed": 1.0})
    seconds = 30.0 if bench.quick else bench.numbers["seconds"]
    with seaweedfs() as server:
        verdict = run_kills(bench, server, seconds, int(bench.numbers["seed"]))
    for word, sentence in verdict.wrong:
        bench.note(f"{word}: {sentence}")
    kills = verdict.faults.total()
    where = f"{verdict.seconds:.0f} s, {verdict.versions} fsynced versions, {len(verdict.remounts)} remounts"
    bench.goal(f"lost in {kills} kills ({where})", "versions", verdict.count("lost"), 0.0, kills)
    bench.goal("mixed", "versions", verdict.count("mixed"), 0.0, verdict.read)
    bench.goal("errors that programs saw of a mount with a supervisor", "errors", verdict.count("error"), 0.0, kills)
    bench.figure("mounted again after a kill, median", "s", percentile(verdict.remounts, 0.5), n=len(verdict.remounts))
    bench.figure("mounted again after a kill, p99", "s", percentile(verdict.remounts, 0.99), n=len(verdict.remounts))
    bench.finish()
    sys.exit(1 if verdict.wrong else 0)


if __name__ == "__main__":
    main()
