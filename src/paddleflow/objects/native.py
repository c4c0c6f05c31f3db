"""File systems that a client of the machine mounts: NFS (`cfs`), GlusterFS and AFS. Needs root, as every mount of theirs does.

A mount is made in a mount namespace of its own, its root is opened from outside, and then it is detached: what is left is a
descriptor. Nobody else on the machine sees the mount, and it ends with the last descriptor, however the process that holds it ends:
`kill -9` leaves nothing behind. `objects.urls` makes a `LocalStore` of the descriptor, and `paddleflow fs mount` a tree.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from paddleflow.base.values import dataclass
from paddleflow.errors import Forbidden, Invalid, NotFound, PaddleFlowError, Unavailable
from paddleflow.objects.local import open_beneath
from paddleflow.objects.store import BAD_CREDENTIALS, NOT_SUPPORTED, shorten

SECONDS = 30.0  #: that a mount may take
NFS_VERSIONS = ("4.1", "4.2", "4.0", "3")  #: the first is the default
NFS_SECURITY = ("sys", "krb5", "krb5i", "krb5p")
PROGRAMS = f"{os.defpath}:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin"
#: Mounts, says so, and waits: whoever asked opens the root meanwhile, or has ended. Then the name is not needed any more.
_SCRIPT = 'folder=$1; shift; "$@" && echo mounted && read -r _; umount -l "$folder" 2> /dev/null; rmdir "$folder"'


@dataclass(frozen=True, slots=True)
class NativeMount:
    """What is mounted, and by whom."""

    name: str  #: for messages: the URL
    client: str  #: the program without which nothing can be mounted
    package: str  #: where to get it
    command: Callable[[str, str], list[str]]  #: for a folder and a log file
    path: str = ""  #: of the wanted folder below the root


def mount_nfs(
    name: str, host: str, port: int, path: str, *, version: str = NFS_VERSIONS[0], security: str = "sys", wait: bool
) -> NativeMount:
    """`wait`: for a server that is away, as programs on a mount expect it; otherwise calls fail after a minute."""
    kind = "nfs" if version == "3" else "nfs4"
    away = "hard,timeo=600" if wait else "soft,timeo=200"
    options = f"vers={version},sec={security},port={port},{away},retrans=2,retry=0,nosuid,nodev"
    server = f"[{host}]" if ":" in host else host
    return NativeMount(
        name,
        f"mount.{kind}",
        "Debian: apt-get install nfs-common",
        lambda folder, log: ["mount", "-t", kind, "-o", options, f"{server}:/{path}", folder],
    )


def mount_glusterfs(name: str, host: str, port: int, volume: str, path: str) -> NativeMount:
    options = f"server-port={port},log-level=ERROR,nosuid,nodev"
    return NativeMount(
        name,
        "mount.glusterfs",
        "Debian: apt-get install glusterfs-client",
        lambda folder, log: ["mount", "-t", "glusterfs", "-o", f"{options},log-file={log}", f"{host}:{volume}", folder],
        path,
    )


def mount_afs(name: str, user: str, password: str) -> NativeMount:
    return NativeMount(
        name,
        "afs_mount",
        "it comes with the AFS service",
        lambda folder, log: ["afs_mount", f"--username={user}", f"--password={password}", folder, name],
    )


def open_mount(mount: NativeMount, seconds: float = SECONDS, programs: str = PROGRAMS) -> int:
    """A descriptor of the wanted folder; closing it ends the mount. Blocks, `seconds` at most. `programs`: where clients are."""
    if shutil.which(mount.client, path=programs) is None:
        raise _no_client(mount, f"{mount.client} is not installed", mount.package)
    if os.geteuid() != 0:
        raise Forbidden(f"{mount.name} can be mounted by root only", hint="run this as root")
    with tempfile.TemporaryDirectory(prefix="pf-mount-") as place:
        folder, log = f"{place}/root", f"{place}/log"
        Path(folder).mkdir(mode=0o700)
        root = _attach(mount, folder, log, seconds, programs)
    try:
        return open_beneath(root, mount.path, os.O_PATH | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(f"{mount.name} does not exist: there is no folder {shorten(mount.path)}") from error
    except OSError as error:
        raise Forbidden(f"{mount.name} cannot be opened: {error.strerror}") from error
    finally:
        os.close(root)


def _attach(mount: NativeMount, folder: str, log: str, seconds: float, programs: str) -> int:
    """A descriptor of the mount's root."""
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-c", _SCRIPT, "sh", folder]
    with Path(f"{folder}.said").open("w+b") as said:
        process = subprocess.Popen(
            [*command, *mount.command(folder, log)],
            env={"PATH": programs, "LC_ALL": "C"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            start_new_session=True,
        )
        with process:
            assert process.stdout is not None
            answered = bool(select.select([process.stdout], [], [], seconds)[0])
            if not answered:
                os.killpg(process.pid, signal.SIGKILL)
            elif process.stdout.readline():
                return _open_root(mount, f"/proc/{process.pid}/root{folder}")
        said.seek(0)
        words = said.read(4096).decode(errors="replace").strip()
    if not answered:
        raise Unavailable(f"{mount.name} was not mounted within {seconds:g} s", hint="check that its server answers")
    with suppress(OSError):
        words = _logged_error(Path(log).read_text(errors="replace")) or words
    raise _refusal(mount, words)


def _open_root(mount: NativeMount, path: str) -> int:
    try:
        return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Unavailable(f"{mount.name} was mounted, but does not answer: {error.strerror}") from error


def _logged_error(text: str) -> str:
    """The last error in GlusterFS's log: its mount program itself says nothing."""
    found = [line for line in text.splitlines() if re.match(r"\[[^]]*\] E ", line)]
    return re.sub(r"^\[[^]]*\] E (\[[^]]*\] )*\S+: ", "", found[-1]).strip() if found else ""


def _refusal(mount: NativeMount, words: str) -> PaddleFlowError:
    """What a client said, by its meaning."""
    why = " ".join(words.split())[:300] or "its client gave no reason"
    if re.search(r"unshare failed|must be superuser|only root", words):
        return Forbidden(f"{mount.name} cannot be mounted here: {why}", hint="a container needs CAP_SYS_ADMIN to mount")
    if re.search(r"No such device|unknown filesystem type", words):
        return _no_client(mount, "this kernel has no such file system", "load the kernel's module, such as nfsv4")
    if re.search(r"(?i)authentication failed|wrong password", words):
        return Forbidden(f"{mount.name}: {why}", code=BAD_CREDENTIALS)
    if re.search(
        r"(?i)protocol not supported|requested nfs version|incorrect mount option|rpc\.statd is not running", words
    ):
        hint = "see which versions and which security its server offers, and what runs on this machine"
        return Invalid(f"{mount.name} cannot be mounted in this way: {why}", code=NOT_SUPPORTED, hint=hint)
    if re.search(r"(?i)access denied|permission denied|operation not permitted", words):
        return Forbidden(f"{mount.name}: {why}", hint="check to which machines its server exports it")
    if re.search(r"(?i)no such file or directory|failed to fetch volume file|volume file.*not found", words):
        return NotFound(f"{mount.name} does not exist: {why}")
    return Unavailable(f"{mount.name} cannot be mounted: {why}")


def _no_client(mount: NativeMount, why: str, hint: str) -> Invalid:
    return Invalid(f"{mount.name} cannot be mounted by this machine: {why}", code=NOT_SUPPORTED, hint=hint)
