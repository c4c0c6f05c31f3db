"""The processes of a cluster, and how they are found again: each carries its cluster's folder in its environment.

No list of process ids has to be kept true. Whoever asks reads ``/proc``, so even what was started a moment before its
starter was killed is found, and an id that the kernel gave to somebody else is not.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.lib.cluster.errors import ClusterError, eventually

_CLUSTER = "PADDLEFLOW_TEST_CLUSTER"
_PART = "PADDLEFLOW_TEST_CLUSTER_PART"
_END_SECONDS = 20.0
_started: dict[tuple[Path, str], subprocess.Popen[bytes]] = {}  #: by this call of the tool


@dataclass(frozen=True)
class Process:
    """One that belongs to a cluster."""

    pid: int
    part: str  #: such as `etcd` or `node1/kubelet`


def spawn(folder: Path, part: str, command: Sequence[str | Path], files: Sequence[int] = ()) -> int:
    """Start a part that goes on when we end; its output goes to its log. The id of the process."""
    log = log_of(folder, part)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        _started[folder, part] = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd=folder,
            env={"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder), _CLUSTER: str(folder), _PART: part},
            start_new_session=True,
            pass_fds=files,
        )
    return _started[folder, part].pid


def find(folder: Path, part: str = "") -> list[Process]:
    """The living processes of a cluster, or of one part of it."""
    cluster = f"{_CLUSTER}={folder}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:  # gone meanwhile, or not ours
                continue
            if cluster in variables:
                told = next((v.decode() for v in variables if v.startswith(f"{_PART}=".encode())), "")
                found.append(Process(int(entry.name), told.partition("=")[2]))
    return sorted((each for each in found if part in ("", each.part)), key=lambda each: each.pid)


def end(folder: Path, part: str = "") -> None:
    """Kill the processes, until there is none left. What a node's first process started dies with it, by the kernel."""
    empty_looks = 0

    def gone() -> bool:
        nonlocal empty_looks
        left = find(folder, part)
        for process in left:
            try:
                os.kill(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        # one look is not enough: a process that is just becoming another program has no environment for a moment
        empty_looks = 0 if left else empty_looks + 1
        return empty_looks == 3

    eventually(gone, f"the processes of {part or folder.name} are gone", _END_SECONDS)


def require_alive(folder: Path, *parts: str) -> None:
    """Refuse, with the end of its log, when one of the parts that this call started has died."""
    for part in parts:
        process = _started.get((folder, part))
        if process is not None and process.poll() is not None:
            raise ClusterError(
                f"{part} has ended with {process.returncode}; the end of {log_of(folder, part)}:\n{tail(folder, part)}"
            )


def log_of(folder: Path, part: str) -> Path:
    return folder / "logs" / f"{part.replace('/', '-')}.log"


def tail(folder: Path, part: str, lines: int = 12) -> str:
    try:
        return "\n".join(log_of(folder, part).read_text("utf-8", errors="replace").splitlines()[-lines:])
    except OSError:
        return "(no log)"
