"""A mount while it lives: threads that read requests and answer them, figures, and the socket that `fs stats` asks.

`serve` returns when the mount is gone. A request that fails in a way that nobody foresaw is answered EIO and logged; it
never ends the session.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import resource
import socket
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from paddleflow.errors import Conflict, NotFound, PaddleFlowError, Unavailable
from paddleflow.fs import kernel
from paddleflow.fs.device import Device
from paddleflow.fs.state import LAYOUT, State
from paddleflow.fs.trace import Opened
from paddleflow.fs.tree import Tree, errno_of
from paddleflow.fs.vfs import MAX_WRITE, NOT_REPEATABLE, Unanswered, Vfs

log = logging.getLogger(__name__)
BUFFER = MAX_WRITE + 8192  #: the kernel wants room for the largest write and its headers
THREADS = 16  #: those that wait for a store must not keep the others from answering
_GONE = (errno.ENODEV, errno.ENOTCONN, errno.EBADF)
_TRY_AGAIN = (errno.EINTR, errno.EAGAIN, errno.ENOENT)  #: ENOENT: the request was interrupted before we read it
_NAMES = {op.value: op.name.lower() for op in kernel.Op}


class Session:
    """Serves one mount with some threads until it is unmounted."""

    def __init__(
        self, tree: Tree, device: Device, folder: Path, source: str, state: State, *, read_only: bool, passthrough: bool
    ) -> None:
        self.tree, self.device, self.folder, self.source, self.state = tree, device, folder, source, state
        self.vfs = Vfs(tree, device, state, read_only=read_only, passthrough=passthrough)
        self.started_at = time.time()
        self._supervisor = os.getppid()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._errors = 0
        self._bytes_read = self._bytes_written = 0  #: by requests; passthrough is not seen here

    def serve(self, *, threads: int = THREADS, ready: Callable[[], None] = lambda: None) -> None:
        """Answer requests until the mount is gone. `ready` is called when the first one can be answered."""
        raise_descriptor_limit()
        sys.setswitchinterval(0.001)  # threads mostly wait for the kernel; hand over soon
        agreed = self.state.agreed
        if agreed.clones:
            # Before the first request is read: one that is being answered would be sent a second time, and executed twice.
            self.device.resend()
        else:
            agreed.clones = self._clones(threads - 1)
            self.state.save_agreed()
        workers = [
            threading.Thread(target=self._run, args=(fd, number), name="fuse")
            for number, fd in enumerate(agreed.clones, start=1)
        ]
        for worker in workers:
            worker.start()
        with _Control(self.folder, {"stats": self.stats, "opens": self.vfs.trace.take}) as control:
            ready()
            control.start()  # whoever is answered sees a worker that was counted
            try:
                self._run(self.device.fd, 0)
            finally:
                for worker in workers:
                    worker.join()
        self.vfs.close()
        self.tree.close()

    def _clones(self, number: int) -> list[int]:
        try:
            return [self.device.clone() for _ in range(number)]
        except OSError:  # /dev/fuse may be root's alone: share the descriptor
            return [os.dup(self.device.fd) for _ in range(number)]

    def _run(self, fd: int, thread: int) -> None:
        buffer = bytearray(BUFFER)
        view = memoryview(buffer)
        target = [buffer]
        try:
            while True:
                try:
                    length = os.readv(fd, target)
                except OSError as error:
                    if error.errno in _GONE:
                        return
                    if error.errno in _TRY_AGAIN:
                        continue
                    raise
                if length == 0:
                    return
                self._serve_one(fd, thread, view[:length])
        finally:
            if fd != self.device.fd:
                os.close(fd)

    def _serve_one(self, fd: int, thread: int, received: memoryview) -> None:
        request = kernel.parse_request(received)
        begin = time.perf_counter()
        if request.opcode in NOT_REPEATABLE:
            self.state.note_intent(thread, request.unique & ~kernel.UNIQUE_RESEND)
        body, number = self._answer(request, received[kernel.IN_HEADER.size :])
        if number is not None:
            size = kernel.OUT_HEADER.size + len(body)
            try:
                os.writev(fd, [kernel.OUT_HEADER.pack(size, -number, request.unique), body])
            except OSError as error:
                # ENOENT: the program was interrupted and waits no more
                if error.errno not in (*_GONE, errno.ENOENT):
                    log.exception("answer to %s was refused", request)
        name = _NAMES.get(request.opcode, "other")
        if request.opcode == kernel.Op.READ:
            self._bytes_read += len(body)
        elif request.opcode == kernel.Op.WRITE and not number:
            self._bytes_written += len(received) - kernel.IN_HEADER.size - kernel.WRITE_IN.size
        self.vfs.counts[name] += 1
        self._seconds[name] += time.perf_counter() - begin

    def _answer(self, request: kernel.Request, body: memoryview) -> tuple[bytes, int | None]:
        """The answer's body and errno; no errno: no answer."""
        try:
            answer = self.vfs.handle(request, body)
            return (answer if isinstance(answer, bytes) else b"".join(answer)), 0
        except Unanswered:
            return b"", None
        except OSError as error:
            return b"", error.errno or errno.EIO
        except PaddleFlowError as error:
            number = errno_of(error)
            if number != errno.ENOENT:
                log.warning("%s: %s", _NAMES.get(request.opcode, "request"), error)
            return b"", number
        except Exception:
            self._errors += 1
            log.exception("request %s failed", request)
            return b"", None if request.opcode in kernel.NO_ANSWER else errno.EIO

    def stats(self) -> dict[str, object]:
        counts = dict(self.vfs.counts)
        return {
            "mount": str(self.folder),
            "source": self.source,
            "pid": self._supervisor,
            "worker": os.getpid(),
            "restarts": self.state.agreed.restarts - 1,
            "layout": LAYOUT,
            "resend": self.state.agreed.resend,
            "started_at": self.started_at,
            "protocol": f"{kernel.MAJOR}.{self.vfs.minor}",
            "passthrough": self.vfs.passthrough,
            "no_open": self.vfs.no_open,
            "opens": {name[5:]: number for name, number in sorted(counts.items()) if name.startswith("open ")},
            "requests": {
                name: {"count": counts.get(name, 0), "seconds": round(seconds, 6)}
                for name, seconds in sorted(self._seconds.items())
            },
            "bytes": {"read": self._bytes_read, "written": self._bytes_written},
            "internal_errors": self._errors,
            "tree": self.tree.stats(),
        }


class _Control:
    """A Unix socket that answers each connection, which asks for one thing, with JSON."""

    def __init__(self, folder: Path, answers: Mapping[str, Callable[[], object]]) -> None:
        self._path, self._answers = control_path(folder), answers
        self._socket = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> Self:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path.unlink(missing_ok=True)
        with _short(self._path) as short:
            self._socket.bind(short)
        self._path.chmod(0o600)
        self._socket.listen(8)
        return self

    def start(self) -> None:
        """Answer; those who asked since the beginning have waited."""
        threading.Thread(target=self._run, name="control", daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.settimeout(5)
                answer = self._answers.get(connection.recv(64).decode(errors="replace"))
                if answer is not None:
                    connection.sendall(json.dumps(answer()).encode())

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._path.unlink(missing_ok=True)


def control_path(folder: Path) -> Path:
    """Where the process behind a mount listens; for its own user only."""
    word = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    return Path.home() / ".cache" / "paddleflow" / "mounts" / f"{word}.sock"


@contextmanager
def _short(path: Path) -> Iterator[str]:
    """A name for a socket that fits into the 108 bytes that an address has."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def ask_stats(folder: Path) -> dict[str, object]:
    """The figures of a mount, from the process behind it."""
    found = _ask(folder, "stats")
    if not isinstance(found, dict):
        raise Conflict(f"the mount on {folder} answered something else than figures")
    return found


def ask_opens(folder: Path) -> list[Opened]:
    """The files that were opened since this was last asked; the first time none, for then it begins to note them."""
    found = _ask(folder, "opens")
    if not isinstance(found, list):
        raise Conflict(f"the mount on {folder} answered something else than opened files")
    return [Opened(*each) for each in found]


def _ask(folder: Path, what: str) -> object:
    path = control_path(folder)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        try:
            with _short(path) as short:
                connection.connect(short)
            connection.sendall(what.encode())
            pieces = []
            while piece := connection.recv(65_536):
                pieces.append(piece)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            hint = "paddleflow fs mount --url … mounts; findmnt -t fuse.paddleflow lists mounts"
            raise NotFound(f"no mount of this user answers for {folder}", hint=hint) from error
        except OSError as error:
            raise Unavailable(f"the mount on {folder} does not answer: {error}") from error
    try:
        return json.loads(b"".join(pieces))
    except ValueError as error:
        raise Unavailable(f"the process behind {folder} ended while it was asked", hint="ask again") from error


def raise_descriptor_limit() -> None:
    """Every node that the kernel knows may hold a descriptor: take as many as are allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if os.geteuid() == 0:
        with suppress(OSError, ValueError):
            most = int(Path("/proc/sys/fs/nr_open").read_text())
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
            return
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard > 0 else soft, hard))
