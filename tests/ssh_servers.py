"""OpenSSH's server for tests: a test skips, with one line that says how to install it, where it is absent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count

import pytest

from paddleflow.objects.sftp import SftpServer, SftpStore
from scripts.lib import ssh_server as servers
from scripts.lib.s3_servers import NotInstalled
from scripts.lib.ssh_server import SshServer

__all__ = ["SshServer", "sftp_folder", "sftp_store", "ssh_server"]
_numbers = count(1)


@contextmanager
def ssh_server(port: int = 0, *, passwords: bool = False) -> Iterator[SshServer]:
    with ExitStack() as stack:
        try:
            server = stack.enter_context(servers.ssh_server(port, passwords=passwords))
        except NotInstalled as error:
            pytest.skip(str(error))
        yield server


def sftp_folder(server: SshServer) -> SftpServer:
    """A folder of the caller's own, with the key of the server's user."""
    folder = server.folder / f"some-{next(_numbers)}"
    folder.mkdir()
    return SftpServer(
        "127.0.0.1", server.port, str(folder), server.user, private_key=server.private_key, host_key=server.host_key
    )


def sftp_store(server: SshServer) -> SftpStore:
    return SftpStore(sftp_folder(server))
