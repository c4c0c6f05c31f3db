"""The server's end of the connection to the keeper: find it or start it, send and receive frames, never block.

Starting is quick because the server itself makes the listening socket and hands it on: it is connected at once, while
the keeper is still importing. There is no task behind this, only reader and writer callbacks of the loop.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import paddleflow
from paddleflow.environment import inherited
from paddleflow.runtimes.local import frames

#: Starts a keeper; folder of the package, data folder and descriptor of the socket follow.
KEEPER_COMMAND = (
    sys.executable, "-I", "-S", "-X", "utf8", "-c",
    "import sys; sys.path.append(sys.argv[1]); "
    "from paddleflow.runtimes.local.keeper import main; main(sys.argv[2], int(sys.argv[3]))",
)  # fmt: skip
LISTENER = 3  #: the descriptor under which a keeper finds its socket
_PACKAGE = str(Path(paddleflow.__file__).resolve().parents[1])
_KEPT = "PATH,HOME,LANG,LC_ALL,TZ,USER,TMPDIR,LD_LIBRARY_PATH"  #: variables that a Python may need to run at all
_LONGEST_PATH = 100  #: bytes; a socket's path has room for 107

_started: set[int] = set()  #: keepers that this process started and has not yet reaped


def connect(data: Path, command: Sequence[str] = KEEPER_COMMAND) -> socket.socket:
    """A connection to the keeper of this folder, which is started when there is none."""
    folder = os.open(data, os.O_RDONLY | os.O_DIRECTORY)
    try:
        path = str(data / "keeper.sock")
        if len(os.fsencode(path)) > _LONGEST_PATH:
            path = f"/proc/self/fd/{folder}/keeper.sock"
        try:
            return _connected(path)
        except (FileNotFoundError, ConnectionRefusedError):
            _start(data, path, command)
            return _connected(path)
    finally:
        os.close(folder)


def _connected(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def _start(data: Path, path: str, command: Sequence[str]) -> None:
    reap()
    (data / "keeper.sock").unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        os.fchmod(listener.fileno(), 0o600)  # before bind: the file never has another mode
        listener.bind(path)
        listener.listen(16)
        log = os.open(data / "keeper.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            _started.add(_spawn([*command, _PACKAGE, str(data), str(LISTENER)], listener.fileno(), log))
        finally:
            os.close(log)


def _spawn(argv: list[str], listener: int, log: int) -> int:
    # By way of numbers that are in nobody's way, however few descriptors this process may have.
    listener, log = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, LISTENER + 1) for fd in (listener, log))
    actions = [
        (os.POSIX_SPAWN_DUP2, log, 1),
        (os.POSIX_SPAWN_DUP2, log, 2),
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, listener, LISTENER),
    ]
    numbers = sorted(set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP})
    try:
        return os.posix_spawn(
            argv[0], argv, inherited(_KEPT), file_actions=actions, setsid=True, setsigmask=(), setsigdef=numbers
        )
    finally:
        os.close(listener)
        os.close(log)


def reap() -> None:
    """Collect the exit status of keepers of ours that have ended."""
    for pid in list(_started):
        try:
            ended, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            ended = pid
        if ended:
            _started.discard(pid)


class KeeperConnection:
    """One connection, within a running event loop."""

    def __init__(
        self, connection: socket.socket, received: Callable[[frames.Message], None], lost: Callable[[], None]
    ) -> None:
        self._socket = connection
        self._received = received
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._inbox = frames.Inbox()
        self._outbox = frames.Outbox()
        self._room = asyncio.Event()
        self._room.set()
        self._open = True
        connection.setblocking(False)
        self._loop.add_reader(connection, self._readable)

    def send(self, message: frames.Message) -> None:
        """Now, with what was posted before."""
        if not self._open:
            return
        self._outbox.add(message)
        if self._room.is_set():
            self._writable()

    def post(self, message: frames.Message) -> None:
        """Before the loop comes round, with what is sent until then: each write wakes the keeper."""
        if not self._open:
            return
        if not self._outbox:
            self._loop.call_soon(self._writable)
        self._outbox.add(message)

    async def drain(self) -> None:
        """Until the system takes what is sent, or the connection is lost."""
        await self._room.wait()

    def close(self) -> None:
        if self._open:
            self._writable()
            self._open = False
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._socket.close()
            self._room.set()

    def _readable(self) -> None:
        try:
            piece = self._socket.recv(1 << 20)
            messages = self._inbox.feed(piece)
        except BlockingIOError:
            return
        except (OSError, ValueError):
            piece, messages = b"", []
        for message in messages:
            self._received(message)
        if not piece:
            self._gone()

    def _writable(self) -> None:
        if not self._open:
            return
        try:
            while self._outbox:
                self._outbox.sent(self._socket.send(self._outbox.take()))
        except BlockingIOError:
            self._room.clear()
            self._loop.add_writer(self._socket, self._writable)
            return
        except OSError:
            self._loop.call_soon(self._gone)
            return
        self._loop.remove_writer(self._socket)
        self._room.set()

    def _gone(self) -> None:
        if self._open:
            self.close()
            self._lost()
