"""The main process of an attempt that runs in a container: python -m paddleflow.runtimes.local.container SPEC OPTIONS… -- COMMAND…

Creates the container with the engine of the settings (podman or docker), starts it attached, waits, and ends with its exit code. For
the keeper it is a process as any other: spawned, adopted, signalled and reaped in the same way. What a process would leave to the
kernel is left in a folder of the attempt that the job cannot reach: `pid`, the number of the container's first process, and
`verdict`, why it ended and what it used. Whatever happens to this process, the keeper removes the container before it reports the
end, see `container_end`.

The container of an isolated job has its user's number. podman is a descendant of this process, so the storages can be shown to it as
that user's in a mount namespace of our own, which ends with the container; and so can it be kept from setting set-user-ID bits on them.
docker's containers are children of its daemon: their storages keep their owners.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from paddleflow.runtimes.local import procfs, seccomp
from paddleflow.runtimes.local.container_end import MOUNTS
from paddleflow.runtimes.local.isolation import IdMaps
from paddleflow.runtimes.local.mounts import Mount, MountTable, open_source
from paddleflow.runtimes.local.namespaces import unshare
from paddleflow.runtimes.local.process import Refused
from paddleflow.runtimes.local.sandbox import detach

CANNOT_START = 125
MOMENT = 0.02  #: seconds that a container may end after its client
PID_EVERY = (
    0.002  #: seconds between two looks for the first process; podman writes its number well before the command begins
)
INSPECT_EVERY = 0.5  #: seconds between two questions to docker for the container's first process
SHORT = 512  #: characters of an engine's message that are kept
TAIL = 4096  #: bytes of the log in which an init that cannot execute the command says so
FROM_CWD = "."  #: the container's working directory is the one that this process was started in
_NOT_EXECUTED = re.compile(rb"failed to exec pid1: (.+)|exec .+ failed: (.+)")
ENGINES = ("podman", "docker")


class Spec(NamedTuple):
    """What the server says of one container; JSON, as the first word. Options of `create` are words of their own: there may be many."""

    engine: list[str]  #: its command with options that come before the subcommand
    kind: str  #: one of ENGINES
    name: str
    folder: str  #: of this attempt, for `pid` and `verdict`
    image: str
    pull: str  #: never, missing or always
    mounts: list[list[str | bool]]  #: as in a launch
    workdir: str
    memory_text: str  #: of its limit; empty: it has none
    own: list[str]  #: folders that belong to its user
    code: str  #: the folder of its code, which is its user's with all that is in it; empty: it has none
    uid: int | None  #: of its user; None: as the image says


class Failed(Exception):
    """It cannot run; the text says why, for a person."""


def run(spec: Spec, options: Sequence[str], command: Sequence[str]) -> int:
    """The exit code of the container."""
    signals = Signals()
    create(spec, options, command)
    if signals.received:
        return 128 + signals.received[0]
    # In a session of its own: a client that a signal meets while it starts passes it on to nobody, and may end.
    words = [*spec.engine, "start", "--attach", "--sig-proxy=false", spec.name]
    if spec.kind == "docker":
        words.remove("--sig-proxy=false")  # it has no such option, and gets no signal to pass on
    client = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        # This process has one thread.
        preexec_fn=None if spec.uid is None else restrict,
    )
    usage = Usage()
    code = watch(spec, client, signals, usage)
    if code:
        usage.message = why(spec, command, usage)
    usage.write(f"{spec.folder}/verdict")
    return code


class Signals:
    """Those that tell a job to stop, for the container. `fd` becomes readable when one comes."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._passed = 0
        self.fd, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, lambda sent, _frame: self.received.append(sent))

    def pass_on(self, spec: Spec, first: int) -> None:
        with suppress(BlockingIOError):
            os.read(self.fd, 64)
        while self._passed < len(self.received):
            number = self.received[self._passed]
            self._passed += 1
            try:
                signal.pidfd_send_signal(first, number)
            except PermissionError:  # the engine is another account's
                _fails([*spec.engine, "kill", "--signal", str(number), spec.name])
            except ProcessLookupError:
                return


def restrict() -> None:
    """What comes now, and all that it starts, sets no set-user-ID or set-group-ID bits."""
    seccomp.install(ctypes.CDLL(None, use_errno=True), contained=True)


def give(folder: str, uid: int) -> None:
    """A folder and all in it to a user, whose processes may be at work there already: no link is followed."""
    if os.stat(folder, follow_symlinks=False).st_uid == uid:  # noqa: PTH116
        return
    for _, folders, files, above in os.fwalk(folder, topdown=False):
        for name in (*folders, *files):
            with suppress(FileNotFoundError):
                os.chown(name, uid, uid, dir_fd=above, follow_symlinks=False)
    os.chown(folder, uid, uid, follow_symlinks=False)


def as_own(spec: Spec, uid: int, mounts: Sequence[Mount]) -> Iterator[Mount]:
    """The same folders, held where no user reaches them and those of others shown as the user's.

    The engine opens its volumes by path, when the container starts: by then a part of a user's path could be a link.
    """
    table, maps = MountTable(unshare(users=False)), IdMaps()
    table.make_private()
    for number, mount in enumerate(mounts):
        place = f"{spec.folder}/{MOUNTS}/{number}"
        os.makedirs(place, 0o700, exist_ok=True)  # noqa: PTH103
        owner = _owner(mount)
        table.attach(detach(table, mount, -1 if owner == uid else maps.get(owner, uid)), place)
        yield Mount(place, mount.target, mount.read_only)


def _owner(mount: Mount) -> int:
    source = open_source(mount)
    try:
        return os.fstat(source).st_uid
    finally:
        os.close(source)


def create(spec: Spec, options: Sequence[str], command: Sequence[str]) -> None:
    os.makedirs(spec.folder, 0o700, exist_ok=True)  # noqa: PTH103 — as all that the keeper starts
    mounts = [Mount(*mount) for mount in spec.mounts]  # type: ignore[arg-type]  # JSON of a Mount
    if spec.uid is not None:
        for folder in spec.own:
            os.chown(folder, spec.uid, spec.uid, follow_symlinks=False)
        if spec.code:
            give(spec.code, spec.uid)
        if spec.kind == "podman":
            mounts = list(as_own(spec, spec.uid, mounts))
    workdir = os.getcwd() if spec.workdir == FROM_CWD else spec.workdir  # noqa: PTH109
    words = [*spec.engine, "create", "--name", spec.name, "--pull", spec.pull, "--workdir", workdir]
    for mount in mounts:
        words += ["--volume", volume(mount)]
    if spec.kind == "podman":
        words += ["--log-driver", "passthrough", "--pidfile", f"{spec.folder}/pid"]
    else:
        words += ["--log-driver", "none"]
    if command:
        words += ["--entrypoint", ""]
    words += [*options, "--", spec.image, *command]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    said = done.stderr.decode("utf-8", "replace").strip()
    if spec.pull != "never" and said:  # the progress of a pull
        print(said, flush=True)
    if done.returncode:
        raise Failed(missing(spec) or f"{spec.kind}: {said.splitlines()[-1][:SHORT] if said else 'create failed'}")


def missing(spec: Spec) -> str:
    """What to say when the image is not here; empty when it is."""
    if spec.pull != "never" or not _fails([*spec.engine, "image", "inspect", spec.image]):
        return ""
    return (
        f"image {spec.image} is not on this machine, and local.pull is never "
        f"(hint: {spec.kind} pull {spec.image}, or set local.pull to missing)"
    )


def volume(mount: Mount) -> str:
    """A bind mount of the folder itself: no part of its sub path is a link."""
    fd = open_source(mount)
    try:
        source = os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115
    finally:
        os.close(fd)
    if ":" in source or ":" in mount.target:
        raise Failed(f"mount {source} at {mount.target}: a path with ':' cannot be given to a container")
    return f"{source}:{mount.target}{':ro' if mount.read_only else ''}"


class Usage:
    """What a container used, read from its cgroup in the moment of its end, before the engine removes that."""

    def __init__(self) -> None:
        self.message = ""
        self.cpu_seconds: float | None = None
        self.peak_memory: int | None = None
        self.out_of_memory = False
        self._files: dict[str, int] = {}

    def open(self, pid: int) -> None:
        text = (procfs.read(f"/proc/{pid}/cgroup") or b"").decode("utf-8", "surrogateescape")
        for line in text.splitlines():
            _, controllers, path = line.split(":", 2)
            for folder in {f"/sys/fs/cgroup/{controllers.removeprefix('name=')}{path}", f"/sys/fs/cgroup{path}"}:
                for name in _COUNTERS:
                    try:
                        self._files.setdefault(name, os.open(f"{folder}/{name}", os.O_RDONLY | os.O_CLOEXEC))
                    except OSError:
                        continue

    def read(self) -> None:
        for name, fd in self._files.items():
            try:
                text = os.pread(fd, 4096, 0).decode("ascii", "replace")
            except OSError:
                continue
            self._take(name, text)

    def _take(self, name: str, text: str) -> None:
        values = dict(line.split()[:2] for line in text.splitlines() if " " in line)
        if name in ("memory.oom_control", "memory.events"):
            self.out_of_memory = values.get("oom_kill", "0") != "0"
        elif name in ("memory.max_usage_in_bytes", "memory.peak"):
            self.peak_memory = int(text)
        elif name == "cpuacct.usage":
            self.cpu_seconds = round(int(text) / 1e9, 6)
        elif "usage_usec" in values:
            self.cpu_seconds = round(int(values["usage_usec"]) / 1e6, 6)

    def write(self, path: str) -> None:
        text = json.dumps([self.message, self.cpu_seconds, self.peak_memory])
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(f"{path}.new", path)  # noqa: PTH105


_COUNTERS = (
    "memory.oom_control", "memory.max_usage_in_bytes", "cpuacct.usage",  # cgroup version 1
    "memory.events", "memory.peak", "cpu.stat",  # and 2
)  # fmt: skip


def watch(spec: Spec, client: subprocess.Popen[bytes], signals: Signals, usage: Usage) -> int:
    """Wait for the container and its client, and look at the container in the moment in which it ends: its exit code."""
    poll, ended = select.poll(), os.pidfd_open(client.pid)
    poll.register(ended, select.POLLIN)
    first, alone = -1, False
    every = PID_EVERY if spec.kind == "podman" else INSPECT_EVERY
    while True:
        ready = {fd for fd, _ in poll.poll(None if first >= 0 else every * 1000)}
        if first < 0 and (pid := first_process(spec)):
            usage.open(pid)
            with suppress(OSError):  # it has ended already
                first = os.pidfd_open(pid)
                poll.register(first, select.POLLIN)
                poll.register(signals.fd, select.POLLIN)
        if signals.fd in ready:
            signals.pass_on(spec, first)
        if first in ready:
            usage.read()
            break
        if ended in ready:
            alone = first >= 0 and not select.select([first], [], [], MOMENT)[0]
            if not alone:
                usage.read()
                break
            poll.unregister(ended)
    if alone:
        return exit_code(spec)
    client.wait()
    return client.returncode if client.returncode >= 0 else exit_code(spec)


def exit_code(spec: Spec) -> int:
    """Of a container whose client was lost."""
    done = subprocess.run([*spec.engine, "wait", spec.name], capture_output=True, check=False)
    text = done.stdout.decode("ascii", "replace").strip()
    return int(text) if text.isdigit() else CANNOT_START


def first_process(spec: Spec) -> int:
    """Its number on this machine; 0: not known yet."""
    path = f"{spec.folder}/pid"
    if spec.kind == "podman":  # writes it by itself
        return int(procfs.read(path) or 0)
    done = subprocess.run(
        [*spec.engine, "inspect", "--format", "{{.State.Pid}}", spec.name], capture_output=True, check=False
    )
    text = done.stdout.decode("ascii", "replace").strip()
    if text.isdigit() and text != "0":
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        return int(text)
    return 0


def why(spec: Spec, command: Sequence[str], usage: Usage) -> str:
    """Why it ended, where that is known better than by the code."""
    if spec.memory_text and (usage.out_of_memory or _says_out_of_memory(spec)):
        return f"memory limit of {spec.memory_text} exceeded"
    lived = usage.cpu_seconds is None or usage.cpu_seconds < 1.0
    if lived and command and (found := _NOT_EXECUTED.search(_tail())):
        said = (found[1] or found[2]).decode("utf-8", "replace").strip().lower()
        return f"cannot execute {command[0]} in image {spec.image}: {said}"
    return ""


def _says_out_of_memory(spec: Spec) -> bool:
    done = subprocess.run(
        [*spec.engine, "inspect", "--format", "{{.State.OOMKilled}}", spec.name], capture_output=True, check=False
    )
    return done.stdout.strip() == b"true"


def _tail() -> bytes:
    """The end of the log, which is the standard output."""
    try:
        size = os.fstat(1).st_size
        fd = os.open("/proc/self/fd/1", os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.pread(fd, TAIL, max(size - TAIL, 0))
    except OSError:
        return b""
    finally:
        os.close(fd)


def _fails(words: Sequence[str]) -> bool:
    return subprocess.run(words, capture_output=True, check=False).returncode != 0


def main(words: Sequence[str]) -> int:
    spec, border = Spec(*json.loads(words[0])), words.index("--")
    try:
        return run(spec, words[1:border], words[border + 1 :])
    except (Failed, Refused, OSError) as error:
        usage = Usage()
        usage.message = str(error)
        usage.write(f"{spec.folder}/verdict")
        print(f"paddleflow: {error}", file=sys.stderr, flush=True)
        return CANNOT_START


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
