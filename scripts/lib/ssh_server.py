"""A real OpenSSH server on this machine's loopback, with an account's own keys and nothing of /etc/ssh.

`NotInstalled` says in one line what is absent. A password can be tried only by root, because sshd reads the shadow file.
"""

from __future__ import annotations

import getpass
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from scripts.lib.ports import free_ports
from scripts.lib.s3_servers import NotInstalled

START_SECONDS = 60.0
SSHD = Path("/usr/sbin/sshd")
SFTP = Path("/usr/lib/openssh/sftp-server")


@dataclass
class SshServer:
    """A server that answers."""

    port: int
    user: str
    private_key: str  #: of the user, as text
    host_key: str  #: its fingerprint
    folder: Path  #: whose parts stores may use
    process: subprocess.Popen[bytes]


@contextmanager
def ssh_server(port: int = 0, *, passwords: bool = False) -> Iterator[SshServer]:
    if not SSHD.exists() or not SFTP.exists():
        raise NotInstalled("OpenSSH's server is not installed (Debian: apt-get install openssh-server)")
    with tempfile.TemporaryDirectory(prefix="pf-sshd-") as place:
        folder, port = Path(place), port or free_ports(1)[0]
        for name in ("host", "user"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        (folder / "files").mkdir()
        lines = [
            f"ListenAddress 127.0.0.1:{port}",
            f"HostKey {folder}/host",
            f"AuthorizedKeysFile {folder}/user.pub",
            f"PidFile {folder}/pid",
            f"Subsystem sftp {SFTP}",
            "StrictModes no",
            "UsePAM no",
            "MaxStartups 500",
            "MaxSessions 500",
            f"PasswordAuthentication {'yes' if passwords else 'no'}",
            "PermitRootLogin yes",
        ]
        (folder / "config").write_text("\n".join(lines) + "\n")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([str(SSHD), "-D", "-e", "-f", str(folder / "config")], stdout=log, stderr=log)
        try:
            _wait(process, port, folder / "log")
            shown = subprocess.run(
                ["ssh-keygen", "-l", "-f", str(folder / "host.pub")], check=True, capture_output=True, text=True
            )
            key = (folder / "user").read_text()
            yield SshServer(port, getpass.getuser(), key, shown.stdout.split()[1], folder / "files", process)
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(10)
            process.kill()
            process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        if process.poll() is not None:
            raise NotInstalled(f"OpenSSH's server does not start here: {log.read_text()[-300:].strip()}")
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"sshd does not answer: {log.read_text()[-2000:]}")
        time.sleep(0.02)
