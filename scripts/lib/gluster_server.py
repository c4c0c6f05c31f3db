"""A real GlusterFS on this machine's loopback: the management daemon and a volume of one brick. Needs root.

GlusterFS has one port for management (24007), so one runs at a time on a machine: a second caller waits for the first. `NotInstalled`
says in one line what is absent.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from scripts.lib.s3_servers import NotInstalled

START_SECONDS = 120.0
PORT = 24007
_LOCK = Path(tempfile.gettempdir()) / "paddleflow-glusterfs.lock"
_DAEMON = """
volume management
    type mgmt/glusterd
    option working-directory {folder}/work
    option run-directory {folder}/run
    option glusterd-sockfile {folder}/cli
    option transport-type socket
    option transport.socket.listen-port {port}
    option transport.socket.bind-address {address}
    option transport.socket.read-fail-log off
    option ping-timeout 0
    option event-threads 1
    option max-port 60999
end-volume
"""


@dataclass
class GlusterServer:
    """A server that answers."""

    host: str
    volume: str
    brick: Path  #: where its files are
    processes: list[int]  #: of the daemon and the brick

    @property
    def url(self) -> str:
        return f"glusterfs://{self.host}:{self.volume}"


@contextmanager
def gluster_server() -> Iterator[GlusterServer]:
    if os.geteuid() != 0:
        raise NotInstalled("GlusterFS is served and mounted by root only")
    if shutil.which("glusterd") is None or shutil.which("mount.glusterfs") is None:
        raise NotInstalled("GlusterFS is not installed (Debian: apt-get install glusterfs-server glusterfs-client)")
    host = socket.gethostname()  # a brick's host must be a name
    try:
        address = socket.gethostbyname(host)
    except OSError as error:
        raise NotInstalled(f"this machine's name {host} is not known to it, which GlusterFS needs") from error
    if not address.startswith("127."):
        raise NotInstalled(f"this machine's name {host} is {address}, and tests stay on loopback (see /etc/hosts)")
    # /tmp may be in memory, where files have no trusted attributes
    with tempfile.TemporaryDirectory(prefix="pf-gluster-", dir="/var/tmp") as place, _LOCK.open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        folder = Path(place)
        for name in ("work", "run", "brick"):
            (folder / name).mkdir()
        (folder / "daemon.vol").write_text(_DAEMON.format(folder=folder, port=PORT, address=address))
        command = ["glusterd", "-N", "-f", f"{folder}/daemon.vol", "-l", f"{folder}/log", "-p", f"{folder}/pid"]
        daemon = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        brick = 0
        try:
            _ask(folder, daemon, "volume", "create", "tests", f"{host}:{folder}/brick", "force")
            _ask(folder, daemon, "volume", "start", "tests")
            brick = int(next((folder / "run" / "vols" / "tests").glob("*.pid")).read_text())
            yield GlusterServer(host, "tests", folder / "brick", [daemon.pid, brick])
        finally:
            daemon.terminate()
            with suppress(subprocess.TimeoutExpired):
                daemon.wait(10)
            daemon.kill()
            daemon.wait()
            if brick:
                with suppress(ProcessLookupError):
                    os.kill(brick, signal.SIGKILL)


def _ask(folder: Path, daemon: subprocess.Popen[bytes], *words: str) -> None:
    """Have the daemon do something, as soon as it can."""
    command = ["gluster", "--mode=script", f"--glusterd-sock={folder}/cli", f"--log-file={folder}/cli-log", *words]
    until = time.monotonic() + START_SECONDS
    while True:
        if daemon.poll() is not None:
            raise NotInstalled(f"GlusterFS does not start here: {(folder / 'log').read_text()[-300:].strip()}")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return
        if time.monotonic() > until:
            raise TimeoutError(f"gluster {' '.join(words)}: {done.stdout}{done.stderr}")
        time.sleep(0.1)
