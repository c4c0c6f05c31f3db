"""The keeper: a small process per data folder that is the parent of all attempts. It outlives the server.

It is started by `keeper_connection` with a listening socket already open, serves one server at a time (a new one takes the place of
the last), and leaves by itself when no server is connected, nothing runs and all is written down. A lock keeps a second
keeper of the same folder waiting until the first is gone, children of it that have not reached their own program yet
included: they hold the lock's descriptor until then.

One thread, one epoll: the socket, the wake-up descriptor of SIGCHLD, and a pidfd per process of an earlier keeper.
"""

# The keeper starts without pathlib, so:
# ruff: noqa: PTH108, PTH116, PTH208

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import socket
import struct
from collections.abc import Callable
from typing import Any

from paddleflow.base.clock import SystemClock
from paddleflow.runtimes.local import cgroups, frames, procfs
from paddleflow.runtimes.local.group_pool import GroupPool
from paddleflow.runtimes.local.journal import Journal
from paddleflow.runtimes.local.launcher import UNLIMITED, Launcher
from paddleflow.runtimes.local.monitor import Monitor
from paddleflow.runtimes.local.recovery import Recovery
from paddleflow.runtimes.local.supervisor import Supervisor
from paddleflow.runtimes.local.timers import Timers
from paddleflow.runtimes.local.turns import take_short_turns

PROTOCOL = 3  #: 3: prefetch by slot class
SPAWNS_PER_ROUND = 16  #: spawns between two rounds of everything else
DEFERRED = 0.01  #: seconds that a report waits for more when nobody waits for it
DEFERRED_PREFETCH = 0.05  #: the same while successors start by themselves; a short step is seen that much later
FIRST_SERVER = 30.0  #: seconds that a new keeper waits for its server


def keeper_id(data: str) -> str:
    """The name of a data folder among those of this machine; stays the same when the folder is moved."""
    seen = os.stat(data)
    return f"{seen.st_dev:x}-{seen.st_ino:x}"


class Keeper:
    """The loop, and the connection to the server."""

    def __init__(self, data: str, listener: socket.socket) -> None:
        self._data = data
        self._clock = SystemClock()
        self._timers = Timers(self._clock)
        self._id = keeper_id(data)
        self._launcher = Launcher(f"{data}/keeper.began", self._id, self._timers.after)
        journal = Journal(f"{data}/keeper.journal", procfs.boot_id())
        self._supervisor = Supervisor(self._launcher, journal, self._timers, self._clock, self._id)
        self._monitor = Monitor(self._supervisor)
        self._epoll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}
        self._listener = listener
        self._server: socket.socket | None = None
        self._inbox = frames.Inbox()
        self._outbox = frames.Outbox()
        self._buffer = bytearray(1 << 18)  #: a new one for each piece would be mapped and unmapped each time
        self._hierarchies: dict[str, cgroups.Hierarchy] | None = None
        self._limits = UNLIMITED
        self._unlimited = ""  #: why limits cannot be enforced
        self._writes = False  #: whether epoll waits for room to write
        self._waits_until = self._clock.monotonic() + FIRST_SERVER
        self._report_at: float | None = None  #: when deferred reports must be sent

    def run(self) -> None:
        """Until there is nothing left to do."""
        self._listen_to_signals()
        _adopt_orphans()
        take_short_turns()
        Recovery(self._supervisor, self._watch_pidfd).run(f"{self._data}/keeper.began")
        self._listener.setblocking(False)
        self._register(self._listener.fileno(), self._accept)
        while not self._idle():
            self._supervisor.reap()
            self._supervisor.spawn_next(SPAWNS_PER_ROUND)
            self._send()
            timeout = 0.0 if self._supervisor.pending else self._timeout()
            for fd, _ in self._epoll.poll(timeout):
                if (handler := self._handlers.get(fd)) is not None:
                    handler()
            self._timers.run()
        self._leave()

    def _idle(self) -> bool:
        if self._server is not None or self._supervisor.busy or self._clock.monotonic() < self._waits_until:
            return False
        return self._supervisor.journal.flush()

    def _timeout(self) -> float | None:
        waits = [self._timers.delay(), 1.0 if not self._supervisor.journal.flush() else None]
        if self._report_at is not None:
            waits.append(max(self._report_at - self._clock.monotonic(), 0.0))
        if self._server is None:
            waits.append(max(self._waits_until - self._clock.monotonic(), 0.0) if not self._supervisor.busy else None)
        return min((wait for wait in waits if wait is not None), default=None)

    def _leave(self) -> None:
        self._supervisor.journal.compact(self._supervisor.attempts.values(), force=True)
        self._limits.close()
        self._launcher.sandboxes.close()
        for base in {each.base for each in (self._hierarchies or {}).values()}:
            cgroups.remove([base])
        # First the name, then the socket: a server that comes now finds no name and starts the next keeper.
        with contextlib.suppress(OSError):
            os.unlink(f"{self._data}/keeper.sock")
        self._listener.close()

    # ------------------------------------------------------------------ descriptors

    def _register(self, fd: int, handler: Callable[[], None]) -> None:
        self._handlers[fd] = handler
        self._epoll.register(fd, select.EPOLLIN)

    def _unregister(self, fd: int) -> None:
        del self._handlers[fd]
        self._epoll.unregister(fd)

    def _watch_pidfd(self, fd: int, ended: Callable[[], None]) -> None:
        def once() -> None:
            self._unregister(fd)
            ended()

        self._register(fd, once)

    def _listen_to_signals(self) -> None:
        # The end of a server's session or service must not end the jobs' parent: it leaves when they have ended.
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        self._wakes = reader
        self._register(reader.fileno(), lambda: drain(reader))

    # ------------------------------------------------------------------ the server

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid not in (os.geteuid(), 0):
            connection.close()
            return
        self._hang_up()
        connection.setblocking(False)
        self._server, self._inbox, self._outbox = connection, frames.Inbox(), frames.Outbox()
        self._writes = False
        self._supervisor.new_server()
        self._register(connection.fileno(), self._receive)
        self._outbox.add({"hello": PROTOCOL, "pid": os.getpid()})

    def _hang_up(self) -> None:
        if self._server is not None:
            self._unregister(self._server.fileno())
            self._server.close()
            self._server = None
            self._waits_until = self._clock.monotonic()

    def _receive(self) -> None:
        server = self._server
        assert server is not None
        try:
            size = server.recv_into(self._buffer)
            messages = self._inbox.feed(memoryview(self._buffer)[:size])
        except BlockingIOError:
            size, messages = 1, []  # only room to write
        except (OSError, ValueError):
            size, messages = 0, []
        if not size:
            self._hang_up()
        for message in messages:
            self._do(message)
        if not self._supervisor.reports.unacknowledged:
            self._supervisor.prefetch.release_held()

    def _do(self, message: dict[str, Any]) -> None:
        supervisor, word = self._supervisor, message["do"]
        if word == "start":
            supervisor.start(message["launches"])
        elif word == "stop":
            supervisor.stop(message["attempts"], message["grace"])
        elif word == "withdraw":
            supervisor.prefetch.withdraw(message["attempts"])
        elif word == "forget":
            supervisor.forget(message["attempts"])
            self._outbox.add({"forgot": message["number"]})
        elif word == "state":
            self._outbox.add({"state": supervisor.state()})
        elif word == "configure":
            self._monitor.log_limit, self._monitor.limit_text = message["log_limit"], message["limit_text"]
            if message["limits"] and self._hierarchies is None:
                self._find_limits()
            self._launcher.limits = self._limits if message["limits"] else UNLIMITED
            if "isolation" in message:
                self._launcher.show(message.get("shown", ()))
                level = self._launcher.isolate(message["isolation"], message["processes"])
                self._outbox.add({"isolation": level})
            self._outbox.add({"limits": self._unlimited if message["limits"] else ""})
        elif word == "hide":
            self._launcher.hide(message["folders"])

    def _find_limits(self) -> None:
        """Find out once whether limits can be enforced, and clear away what a crashed keeper left."""
        self._hierarchies, self._unlimited = cgroups.locate(f"paddleflow-{self._id}")
        self._limits = GroupPool(cgroups.Cgroups(self._hierarchies), self._timers.after)
        used = {folder for attempt in self._supervisor.attempts.values() for folder in attempt.plan.get("groups", ())}
        unused = [folder for folder in cgroups.left_over(self._hierarchies) if folder not in used]
        cgroups.kill(unused)
        cgroups.remove(unused)
        cgroups.clear_empty(self._hierarchies)

    def _defers_reports(self) -> bool:
        """Whether what there is to report waits for more: each report costs the server a turn.

        A start waits a moment, because a short job's end follows at once and reports both. Ends whose successors have
        started wait as well, until half of the prefetched launches are used up: then the server should send more.
        """
        reports, now = self._supervisor.reports, self._clock.monotonic()
        used_up = reports.ends >= len(self._supervisor.prefetch) and reports.ends and not reports.unacknowledged
        if reports and not reports.urgent and not used_up:
            self._report_at = self._report_at or now + (
                DEFERRED_PREFETCH if len(self._supervisor.prefetch) else DEFERRED
            )
            if now < self._report_at:
                return True
        self._report_at = None
        return False

    def _send(self) -> None:
        """Write down, then report."""
        self._supervisor.settle()
        notes, self._launcher.notes = self._launcher.notes, []
        events = [] if self._defers_reports() else self._supervisor.reports.take()
        if self._server is None:
            return
        if events:
            self._outbox.add({"events": events})
        if notes:
            self._outbox.add({"notes": notes})
        try:
            while self._outbox:
                self._outbox.sent(self._server.send(self._outbox.take()))
        except BlockingIOError:
            pass
        except OSError:
            # The server is gone, but what it sent last is still to be read: `_receive` reads it and then hangs up.
            self._outbox = frames.Outbox()
        if self._writes != bool(self._outbox):
            self._writes = bool(self._outbox)
            wanted = select.EPOLLIN | (select.EPOLLOUT if self._writes else 0)
            self._epoll.modify(self._server.fileno(), wanted)


def drain(reader: socket.socket) -> None:
    """Read and drop what woke us."""
    try:
        while len(reader.recv(4096)) == 4096:
            pass
    except BlockingIOError:
        return


_SET_CHILD_SUBREAPER = 36


def _adopt_orphans() -> None:
    """Descendants whose parents have gone become our children, so none escapes by leaving its group."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main(data: str, listener: int) -> None:
    """Run as the keeper of a data folder, with a socket that listens already."""
    with open("/proc/self/comm", "w") as file:
        file.write("pf-keeper")
    os.chdir("/")
    # Whatever the server was started with stays with the server: jobs get three descriptors and no more.
    os.closerange(listener + 1, max(map(int, os.listdir("/proc/self/fd"))) + 1)
    os.set_inheritable(listener, False)
    lock = os.open(f"{data}/keeper.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    Keeper(data, socket.socket(fileno=listener)).run()
