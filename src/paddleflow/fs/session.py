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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from paddleflow.errors import Conflict, NotFound, PaddleFlowError, Unavailable
from paddleflow.fs import kernel
from paddleflow.fs.device import Device
from paddleflow.fs.tree import Tree, errno_of
from paddleflow.fs.vfs import MAX_WRITE, Unanswered, Vfs

log = logging.getLogger(__name__)
BUFFER = MAX_WRITE + 8192  #: the kernel wants room for the largest write and its headers
THREADS = 16  #: those that wait for a store must not keep the others from answering
_GONE = (errno.ENODEV, errno.ENOTCONN, errno.EBADF)
_TRY_AGAIN = (errno.EINTR, errno.EAGAIN, errno.ENOENT)  #: ENOENT: the request was interrupted before we read it
_NAMES = {op.value: op.name.lower() for op in kernel.Op}


class Session:
    """Serves one mount with some threads until it is unmounted."""

    def __init__(
        self, tree: Tree, device: Device, folder: Path, source: str, *, read_only: bool, passthrough: bool = True
    ) -> None:
        self.tree, self.device, self.folder, self.source = tree, device, folder, source
        self.vfs = Vfs(tree, device, read_only=read_only, passthrough=passthrough)
        self.started_at = time.time()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._errors = 0

    def serve(self, *, threads: int = THREADS, ready: Callable[[], None] = lambda: None) -> None:
        """Answer requests until the mount is gone. `ready` is called when the first one can be answered."""
        raise_descriptor_limit()
        sys.setswitchinterval(0.001)  # threads mostly wait for the kernel; hand over soon
        workers = [threading.Thread(target=self._run, args=(fd,), name="fuse") for fd in self._clones(threads - 1)]
        for worker in workers:
            worker.start()
        with _Control(self.folder, self.stats):
            ready()
            try:
                self._run(self.device.fd)
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

    def _run(self, fd: int) -> None:
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
                self._serve_one(fd, view[:length])
        finally:
            if fd != self.device.fd:
                os.close(fd)

    def _serve_one(self, fd: int, received: memoryview) -> None:
        request = kernel.parse_request(received)
        begin = time.perf_counter()
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
            "pid": os.getpid(),
            "started_at": self.started_at,
            "protocol": f"{kernel.MAJOR}.{self.vfs.minor}",
            "passthrough": self.vfs.passthrough,
            "no_open": self.vfs.no_open,
            "opens": {name[5:]: number for name, number in sorted(counts.items()) if name.startswith("open ")},
            "requests": {
                name: {"count": counts.get(name, 0), "seconds": round(seconds, 6)}
                for name, seconds in sorted(self._seconds.items())
            },
            "internal_errors": self._errors,
            "tree": self.tree.stats(),
        }


class _Control:
    """A Unix socket that answers each connection with the figures as JSON."""

    def __init__(self, folder: Path, stats: Callable[[], dict[str, object]]) -> None:
        self._path, self._stats = control_path(folder), stats
        self._socket = socket.socket(socket.AF_UNIX)

    def __enter__(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path.unlink(missing_ok=True)
        with _short(self._path) as short:
            self._socket.bind(short)
        self._path.chmod(0o600)
        self._socket.listen(8)
        threading.Thread(target=self._run, name="control", daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, suppress(OSError):
                connection.settimeout(5)
                connection.sendall(json.dumps(self._stats()).encode())

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
    path = control_path(folder)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        try:
            with _short(path) as short:
                connection.connect(short)
            pieces = []
            while piece := connection.recv(65_536):
                pieces.append(piece)
        except (FileNotFoundError, ConnectionRefusedError) as error:
            hint = "paddleflow fs mount --url … mounts; findmnt -t fuse.paddleflow lists mounts"
            raise NotFound(f"no mount of this user answers for {folder}", hint=hint) from error
        except OSError as error:
            raise Unavailable(f"the mount on {folder} does not answer: {error}") from error
    found = json.loads(b"".join(pieces))
    if not isinstance(found, dict):
        raise Conflict(f"the mount on {folder} answered something else than figures")
    return found


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
