"""A command inside an attempt of this machine: a process that `enter` starts, with pipes or a terminal.

Its ends do not block and are served by the event loop: a command that does not read, or a client that does not, holds up nobody
else. What was read waits in a queue of bounded length.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from contextlib import suppress

from paddleflow.runtimes.exec import STDERR, STDOUT, ExecRequest, Output

PIECE = 64 * 2**10  #: bytes that are read at once
WAITING = 16  #: pieces that wait for a reader
SILENCE = 5.0  #: seconds after its end in which what it left in the background may still write
GRACE = 1.0  #: seconds between the first signal and SIGKILL


class LocalExec:
    """An `ExecSession`: made in a thread, as starting a process blocks, and `begin` on the event loop."""

    def __init__(self, request: ExecRequest, pid: int) -> None:
        words = [sys.executable, "-I", "-m", "paddleflow.runtimes.local.enter", str(pid), request.attempt]
        words += request.command
        self._terminal = -1
        if request.tty:
            self._terminal, other = pty.openpty()
            self.resize(request.rows, request.columns)
            theirs = (other, other, other)
            self._input, self._ends = self._terminal, {self._terminal: STDOUT}
        else:
            (stdin, self._input), (out, stdout), (err, stderr) = os.pipe(), os.pipe(), os.pipe()
            theirs = (stdin, stdout, stderr)
            self._ends = {out: STDOUT, err: STDERR}
        try:
            stdin, stdout, stderr = theirs
            self._process = subprocess.Popen(words, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True)
        except OSError:
            for end in {self._input, *self._ends}:
                os.close(end)
            raise
        finally:
            for end in set(theirs):
                os.close(end)
        for end in {self._input, *self._ends}:
            os.set_blocking(end, False)
        self._queue: asyncio.Queue[Output | int] = asyncio.Queue()
        self._reading: set[int] = set()  #: ends that the loop watches
        self._finished = False  #: all that is to be read is in the queue
        self._active = True  #: it has written since the last look

    def begin(self) -> None:
        """Take part in the event loop."""
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        self._watch()
        threading.Thread(target=self._await_end, daemon=True).start()

    async def read(self) -> Output | int:
        found = await self._queue.get()
        self._watch()
        return found

    async def write(self, data: bytes) -> None:
        if not data and self._input == self._terminal:
            data = b"\x04"
        if not data:
            self._close_input()
        view = memoryview(data)
        while view and self._input >= 0:
            try:
                view = view[os.write(self._input, view) :]
            except BlockingIOError:
                await self._room()
            except OSError:  # nobody reads it any more
                return

    def resize(self, rows: int, columns: int) -> None:
        if self._terminal >= 0:
            with suppress(OSError):
                fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def close(self) -> None:
        """Ends the command: its own group, and by the death of `enter` what runs in another namespace."""
        for number in (signal.SIGHUP if self._terminal >= 0 else signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                if not self._ended.done():
                    os.killpg(self._process.pid, number)
            await asyncio.wait([self._ended], timeout=GRACE)
        self._finish()
        self._close_input()
        for end in self._ends:
            if end != self._terminal:
                os.close(end)
        if self._terminal >= 0:
            os.close(self._terminal)
        self._ends, self._terminal = {}, -1

    # ---- on the event loop

    async def _room(self) -> None:
        """Until the command has read some of its input."""
        free = asyncio.Event()
        self._loop.add_writer(self._input, free.set)
        try:
            await free.wait()
        finally:
            if self._input >= 0:
                self._loop.remove_writer(self._input)

    def _watch(self) -> None:
        """Read on while there is room in the queue."""
        wanted = set() if self._finished or self._queue.qsize() >= WAITING else set(self._ends)
        for end in wanted - self._reading:
            self._loop.add_reader(end, self._take, end)
        for end in self._reading - wanted:
            self._loop.remove_reader(end)
        self._reading = wanted

    def _take(self, end: int) -> None:
        try:
            data = os.read(end, PIECE)
        except BlockingIOError:
            return
        except OSError:  # the terminal has nobody on its other side
            data = b""
        if data:
            self._active = True
            self._queue.put_nowait(Output(self._ends[end], data))
            self._watch()
            return
        self._loop.remove_reader(end)
        self._reading.discard(end)
        if end != self._terminal:
            os.close(end)
        del self._ends[end]
        if not self._ends and self._ended.done():
            self._finish()

    def _finish(self) -> None:
        if not self._finished:
            self._finished = True
            self._watch()
            self._queue.put_nowait(self._ended.result() if self._ended.done() else 128 + signal.SIGKILL)

    def _note_end(self, code: int) -> None:
        self._ended.set_result(128 - code if code < 0 else code)
        self._active = True
        self._await_silence()

    def _await_silence(self) -> None:
        """What it left in the background may hold its output open; who writes nothing for a while is not waited for."""
        if self._finished:
            return
        if not self._ends or not (self._active or self._queue.qsize() >= WAITING):
            self._finish()
            return
        self._active = False
        self._loop.call_later(SILENCE, self._await_silence)

    def _close_input(self) -> None:
        if self._input >= 0:
            if self._input != self._terminal:
                self._loop.remove_writer(self._input)
                os.close(self._input)
            self._input = -1

    # ---- in a thread of its own

    def _await_end(self) -> None:
        code = self._process.wait()
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._note_end, code)
