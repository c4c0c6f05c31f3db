"""The socket of a mount's process, which answers its user with statistics and opened files (`fs stats`, `fs profile`, the server).

Light on purpose: clients import nothing of what serves a mount.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from paddleflow.errors import Conflict, NotFound, Unavailable
from paddleflow.fs.trace import Opened

ANSWER_SECONDS = 5.0  #: after which a mount does not answer


class ControlSocket:
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


def find_processes(folder: Path) -> list[int]:
    """The worker and the supervisor behind a mount; told by the kernel, so also of one that does not answer."""
    with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
        connection.settimeout(ANSWER_SECONDS)
        with _short(control_path(folder)) as short:
            connection.connect(short)
        worker = struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        above = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
        words, theirs = (Path(f"/proc/{each}/cmdline").read_bytes() for each in (worker, above))
        return [worker, above] if words == theirs else [worker]
    return []


def _ask(folder: Path, what: str) -> object:
    path = control_path(folder)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(ANSWER_SECONDS)
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
        raise Unavailable(f"the process behind {folder} ended before it answered", hint="try again") from error
