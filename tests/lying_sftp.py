"""An SFTP server that says what it likes: in a process of its own, as it may use all of its core."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

import asyncssh
from asyncssh import SFTPAttrs, SFTPName, SFTPServer

FILE, FOLDER = 0o100644, 0o40755
#: What it says its folders hold, by the first folder of a path. A single name is said again and again; none: numbers without end.
LIES: dict[str, tuple[list[bytes], int]] = {
    "odd": ([b"\xff\xfe", b"a/b", b"../x", b"..", b"a\nb", b"plain"], FILE),
    "same": ([b"a"], FILE),
    "folders": ([], FOLDER),
    "huge": ([b"plain"], FILE),
}


class _Liar(SFTPServer):
    def realpath(self, path: bytes) -> bytes:
        return path

    def _attributes(self, path: bytes) -> SFTPAttrs:
        last = path.rpartition(b"/")[2].decode()
        size = 2**64 - 1 if path.startswith(b"/huge") else 5
        return SFTPAttrs(permissions=FOLDER if last in LIES else FILE, size=size, mtime=1, atime=1)

    def stat(self, path: bytes) -> SFTPAttrs:
        return self._attributes(path)

    lstat = stat

    async def scandir(self, path: bytes) -> AsyncIterator[SFTPName]:
        names, mode = LIES[path.split(b"/")[1].decode()]
        number = 0
        while True:
            number += 1
            for name in names or [b"%d" % number]:
                yield SFTPName(
                    name, attrs=SFTPAttrs(permissions=mode, size=self._attributes(path + b"/x").size, mtime=1, atime=1)
                )
            if len(names) > 1 or path.startswith(b"/huge"):
                return


class _Open(asyncssh.SSHServer):
    def password_auth_supported(self) -> bool:
        return True

    def validate_password(self, username: str, password: str) -> bool:
        return True


def _serve(told: Connection) -> None:
    async def run() -> None:
        key = asyncssh.generate_private_key("ssh-ed25519")
        server = await asyncssh.create_server(_Open, "127.0.0.1", 0, server_host_keys=[key], sftp_factory=_Liar)
        told.send(server.sockets[0].getsockname()[1])
        await server.wait_closed()

    asyncio.run(run())


@contextmanager
def lying_sftp() -> Iterator[int]:
    """Its port; it lets everybody in."""
    context = multiprocessing.get_context("spawn")
    told, tells = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(tells,), daemon=True)
    process.start()
    try:
        if not told.poll(30):
            raise TimeoutError("the SFTP server did not start")
        yield told.recv()
    finally:
        process.kill()
        process.join()
