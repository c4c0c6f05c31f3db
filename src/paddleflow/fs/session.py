"""A mount while it lives: threads that read requests and answer them, and figures.

`serve` returns when the mount is gone. A request that fails in a way that nobody foresaw is answered EIO and logged; it
never ends the session.
"""

from __future__ import annotations

import errno
import logging
import os
import resource
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from paddleflow.errors import PaddleFlowError
from paddleflow.fs import kernel
from paddleflow.fs.control import ControlSocket
from paddleflow.fs.device import Device
from paddleflow.fs.options import THREADS
from paddleflow.fs.request_lock import RequestLock
from paddleflow.fs.state import LAYOUT, State
from paddleflow.fs.tree import Tree, errno_of
from paddleflow.fs.vfs import MAX_WRITE, NOT_REPEATABLE, QUICK, Unanswered, Vfs

log = logging.getLogger(__name__)
BUFFER = MAX_WRITE + 8192  #: the kernel wants room for the largest write and its headers
_GONE = (errno.ENODEV, errno.ENOTCONN, errno.EBADF)
_TRY_AGAIN = (errno.EINTR, errno.EAGAIN, errno.ENOENT)  #: ENOENT: the request was interrupted before we read it
_READ, _WRITE = int(kernel.Op.READ), int(kernel.Op.WRITE)
_NAMES = {op.value: op.name.lower() for op in kernel.Op}


class Session:
    """Serves one mount with some threads until it is unmounted."""

    def __init__(
        self,
        tree: Tree,
        device: Device,
        folder: Path,
        source: str,
        state: State,
        request_lock: RequestLock,
        *,
        read_only: bool,
        passthrough: bool,
    ) -> None:
        self.tree, self.device, self.folder, self.source, self.state = tree, device, folder, source, state
        self.vfs = Vfs(tree, device, state, read_only=read_only, passthrough=passthrough)
        self._request_lock = request_lock
        self._quick = QUICK if tree.quick else frozenset()  #: operations that begin with the request lock held
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
        with ControlSocket(self.folder, {"stats": self.stats, "opens": self.vfs.trace.take}) as control:
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
                self._request_lock.acquire()
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
            self._request_lock.release()
            if fd != self.device.fd:
                os.close(fd)

    def _serve_one(self, fd: int, thread: int, received: memoryview) -> None:
        request = kernel.parse_request(received)
        begin = time.perf_counter()
        if request.opcode not in self._quick:
            self._request_lock.release()
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
        if request.opcode == _READ:
            self._bytes_read += len(body)
        elif request.opcode == _WRITE and not number:
            self._bytes_written += len(received) - kernel.IN_HEADER.size - kernel.WRITE_IN.size
        self.vfs.counts[name] += 1
        self._seconds[name] += time.perf_counter() - begin

    def _answer(self, request: kernel.Request, body: memoryview) -> tuple[bytes | bytearray | memoryview, int | None]:
        """The answer's body and errno; no errno: no answer."""
        try:
            answer = self.vfs.handle(request, body)
            return (b"".join(answer) if isinstance(answer, tuple) else answer), 0
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
