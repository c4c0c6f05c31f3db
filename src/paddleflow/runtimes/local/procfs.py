"""What the keeper reads from /proc. Nothing is cached; what is gone is None or left out."""

# The keeper starts without pathlib, so:
# ruff: noqa: PTH116, PTH208

from __future__ import annotations

import fcntl
import os
import struct
import time

ATTEMPT = "PADDLEFLOW_ATTEMPT"
KEEPER = "PADDLEFLOW_KEEPER"
SANDBOX = "PADDLEFLOW_SANDBOX"  #: of the first process of a sandbox: the user number that it is for

_PAGE = 1 << 12
_TICK = 1_000_000_000 // os.sysconf("SC_CLK_TCK")  #: nanoseconds
_LISTEN = b"0A"
_GET_INFO = (3 << 30) | (64 << 16) | (0xFF << 8) | 11  # PIDFD_GET_INFO, _IOWR(0xFF, 11, 64 bytes)
_INFO_EXIT = 1 << 3
_INFO = struct.Struct("<QQ11Ii")  # mask, cgroup, pid … fsgid, exit status


class Stat:
    """The fields of /proc/PID/stat that matter here."""

    __slots__ = ("group", "parent", "pid", "session", "state", "status", "ticks")

    def __init__(self, pid: int, text: bytes) -> None:
        fields = text[text.rindex(b")") + 2 :].split()
        self.pid = pid
        self.state = fields[0].decode("ascii")
        self.parent = int(fields[1])
        self.group = int(fields[2])
        self.session = int(fields[3])
        self.ticks = int(fields[19])
        self.status = int(fields[49]) if len(fields) > 49 else 0  #: of a zombie, as wait() gives it


def read(path: str) -> bytes | None:
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        pieces = []
        while piece := os.read(fd, 1 << 16):
            pieces.append(piece)
        return b"".join(pieces)
    except OSError:
        return None
    finally:
        os.close(fd)


def stat(pid: int) -> Stat | None:
    text = read(f"/proc/{pid}/stat")
    return Stat(pid, text) if text else None


def boot_id() -> str:
    return (read("/proc/sys/kernel/random/boot_id") or b"").decode("ascii").strip()


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def attempt_of(pid: int, keeper: str) -> str | None:
    """The attempt of this keeper that a process belongs to, by its environment."""
    name = _environment(pid, keeper).get(ATTEMPT.encode())
    return os.fsdecode(name) if name else None


def _environment(pid: int, keeper: str) -> dict[bytes, bytes]:
    """Of a process of this keeper; of others nothing."""
    text = read(f"/proc/{pid}/environ")
    if not text or f"{KEEPER}={keeper}".encode() not in text:
        return {}
    words = dict(part.split(b"=", 1) for part in text.split(b"\0") if b"=" in part)
    return words if words.get(KEEPER.encode()) == keeper.encode() else {}


def is_changing(pid: int) -> bool:
    """Whether a process is about to become another program: for that moment it has no environment."""
    if read(f"/proc/{pid}/environ") != b"":
        return False
    seen = stat(pid)
    return seen is not None and seen.state not in "ZX"


def belonging(keeper: str) -> dict[str, list[Stat]]:
    """The living processes of every attempt of this keeper, oldest first."""
    found: dict[str, list[Stat]] = {}
    for pid in pids():
        name = attempt_of(pid, keeper)
        if name is not None and (seen := stat(pid)) is not None:
            found.setdefault(name, []).append(seen)
    for processes in found.values():
        processes.sort(key=lambda seen: (seen.ticks, seen.pid))
    return found


def sandboxes(keeper: str) -> list[tuple[Stat, int]]:
    """The first processes of this keeper's sandboxes, and the user numbers that they are for. Jobs cannot pose as one: it is ours."""
    found = []
    for pid in pids():
        uid = _environment(pid, keeper).get(SANDBOX.encode(), b"")
        if uid.isdigit() and owner(pid) == os.geteuid() and _is_first(pid) and (seen := stat(pid)) is not None:
            found.append((seen, int(uid)))
    return found


def _is_first(pid: int) -> bool:
    """Whether it is the first process of a namespace."""
    lines = (read(f"/proc/{pid}/status") or b"").split(b"\n")
    return any(line.startswith(b"NSpid:") and line.split()[-1] == b"1" for line in lines)


def namespace(pid: int) -> int | None:
    """Which namespace of processes one lives in."""
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return None


def owner(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return None


def children(pid: int) -> list[int]:
    return [int(word) for word in (read(f"/proc/{pid}/task/{pid}/children") or b"").split()]


def living_groups() -> set[int]:
    """The process groups of this machine that have a member which has not ended."""
    seen = (stat(pid) for pid in pids())
    return {each.group for each in seen if each is not None and each.state not in "ZX"}


class Children:
    """The children of this process (which has one thread). The file stays open: they are read after every end."""

    def __init__(self) -> None:
        me = os.getpid()
        try:
            self._fd = os.open(f"/proc/{me}/task/{me}/children", os.O_RDONLY)
        except OSError:
            self._fd = -1

    def __call__(self) -> list[int]:
        text = b""
        while self._fd >= 0 and (piece := os.pread(self._fd, _PAGE, len(text))):
            text += piece
            if len(piece) < _PAGE // 2:  # the kernel fills a page with whole numbers as long as there are any
                break
        return [int(word) for word in text.split()]


def clock_ticks() -> int:
    """Now, as the start of a process is given in /proc/PID/stat."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // _TICK


def listening() -> set[int]:
    """The TCP ports that anybody listens on."""
    ports = set()
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        for row in (read(path) or b"").split(b"\n")[1:]:
            fields = row.split(None, 4)
            if len(fields) > 3 and fields[3] == _LISTEN:
                ports.add(int(fields[1].rsplit(b":", 1)[1], 16))
    return ports


def _may_read(pid: int) -> bool:
    """Whether the status in /proc is true: to those who may not know, the kernel says 0."""
    return os.geteuid() in (0, owner(pid))


def exit_status_of_non_child(pid: int, ticks: int, pidfd: int) -> int | None:
    """How a process that is not our child ended, as wait() gives it.

    While it is a zombie /proc tells; after that, Linux 6.15 and later tell whoever held a pidfd. None: not known.
    """
    seen = stat(pid)
    if seen is not None and seen.ticks == ticks:
        return seen.status if seen.state in "ZX" and _may_read(pid) else None
    if pidfd < 0:
        return None
    buffer = bytearray(struct.pack("<Q", _INFO_EXIT) + bytes(56))
    try:
        fcntl.ioctl(pidfd, _GET_INFO, buffer)
    except OSError:
        return None
    values = _INFO.unpack(buffer)
    return int(values[-1]) if values[0] & _INFO_EXIT else None
