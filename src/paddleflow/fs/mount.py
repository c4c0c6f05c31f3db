"""Mounting from options to the end: choose the tree, mount, serve in the foreground or in a process of its own.

Called by `paddleflow fs mount`. In the background the caller gets its answer when the mount answers requests, or the error
in words when it does not come to that.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from urllib.parse import unquote

from paddleflow.base.names import nearest
from paddleflow.errors import Conflict, Invalid, PaddleFlowError, Unavailable
from paddleflow.fs import device
from paddleflow.fs.blocks import DataCache
from paddleflow.fs.meta import Defaults
from paddleflow.fs.posix import PosixTree
from paddleflow.fs.remote import RemoteOptions, RemoteTree
from paddleflow.fs.session import THREADS, Session, control_path
from paddleflow.fs.tree import Tree
from paddleflow.fs.writer import Staging
from paddleflow.objects.urls import Access, open_store
from paddleflow.objects.wrappers import Retrying

log = logging.getLogger(__name__)
SCHEMES = ("file", "local", "s3")


@dataclass(frozen=True, slots=True)
class MountOptions:
    """What `fs mount` is asked for."""

    url: str
    folder: Path
    read_only: bool = False
    immutable: bool = False  #: the source does not change while it is mounted; implies read_only
    allow_other: bool = False  #: other users may use the mount
    passthrough: bool = True
    seconds: float | None = None  #: after which a change made elsewhere is noticed; None: as suits the source
    threads: int = THREADS
    # of stores only
    access: Access = field(default_factory=Access)
    strict: bool = False  #: ask the store at every open
    writeback: bool = False  #: upload in the background; a journal on this machine's disk until then
    plain: bool = False  #: objects carry no attributes of ours
    cache_folder: Path | None = None  #: None: below the user's cache folder
    cache_size: int = 20 * 2**30  #: bytes


def open_tree(options: MountOptions) -> Tree:
    """The tree that a URL names."""
    scheme, separator, rest = options.url.partition("://")
    match scheme.lower() if separator else "":
        case "file" | "local":
            root = Path("/" + unquote(rest).lstrip("/"))
            if options.folder.resolve() == root.resolve():
                raise Invalid(f"{options.folder} would be mounted on itself", hint="name another folder to mount on")
            seconds = 1.0 if options.seconds is None else options.seconds
            return PosixTree(root, seconds=seconds, immutable=options.immutable)
        case "s3":
            return _open_remote(options)
        case "":
            hint = "write it as file:///data/team or s3://bucket/prefix"
            raise Invalid(f"{options.url!r} is no URL", hint=hint)
        case _:
            raise Invalid(f"type {scheme!r} cannot be mounted", hint=nearest(scheme, SCHEMES))


def _open_remote(options: MountOptions) -> Tree:
    store = Retrying(open_store(options.url, options.access))
    store.stat("")  # says at once what is wrong with name, port, keys or bucket
    folder = options.cache_folder or _default_cache(options)
    _lock_folder(folder)
    staging = Staging(folder / "staging", store)
    if not (options.read_only or options.immutable) and (sent := staging.recover()):
        log.info("%s files of an earlier mount were uploaded", sent)
    return RemoteTree(
        store,
        DataCache(folder / "data", options.cache_size),
        staging,
        Defaults(os.getuid(), os.getgid()),
        RemoteOptions(
            ttl=10.0 if options.seconds is None else options.seconds,
            immutable=options.immutable,
            strict=options.strict,
            writeback=options.writeback,
            plain=options.plain,
        ),
    )


def _default_cache(options: MountOptions) -> Path:
    word = hashlib.sha256(f"{options.access.endpoint} {options.url}".encode()).hexdigest()[:16]
    return Path.home() / ".cache" / "paddleflow" / "fs" / word


def _lock_folder(folder: Path) -> None:
    """One mount per cache folder: two would remove each other's files. Held until the process ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        hint = "give this mount another --cache-dir"
        raise Conflict(f"cache folder {folder} is in use by another mount", hint=hint) from error
    except OSError as error:
        raise Unavailable(f"cache folder {folder} cannot be used: {error.strerror}", hint="see --cache-dir") from error


def run_mount(options: MountOptions, ready: Callable[[], None] = lambda: None) -> None:
    """Mount and serve until it is unmounted, or a signal asks to end."""
    read_only = options.read_only or options.immutable
    if device.is_mounted(options.folder):
        raise Conflict(f"{options.folder} has a mount already", hint=f"paddleflow fs umount {options.folder}")
    tree = open_tree(options)
    opened = device.mount(options.url, options.folder, read_only=read_only, allow_other=options.allow_other)
    session = Session(tree, opened, options.folder, options.url, read_only=read_only, passthrough=options.passthrough)

    def end(number: int, frame: FrameType | None) -> None:
        with suppress(PaddleFlowError):
            device.unmount(options.folder, force=True)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    try:
        session.serve(threads=options.threads, ready=ready)
    finally:
        opened.close()


def start_mount(options: MountOptions) -> int:
    """The same in a process of its own; its id. Returns when the mount answers."""
    receiver, sender = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(receiver)
        _become_daemon(options, sender)
    os.close(sender)
    os.waitpid(child, 0)
    with open(receiver, "rb") as pipe:
        said = pipe.read()
    if not said:
        raise Unavailable(f"the process that mounts on {options.folder} ended without a word", hint=_see_log(options))
    answer = json.loads(said)
    if "pid" in answer:
        return int(answer["pid"])
    raise PaddleFlowError(answer["message"], code=answer["code"], hint=answer["hint"])


def _become_daemon(options: MountOptions, sender: int) -> None:
    """In the forked child: leave terminal and parent, mount, say so, serve. Does not return."""
    os.setsid()
    if os.fork() != 0:
        os._exit(0)

    def say(answer: dict[str, object]) -> None:
        with suppress(OSError):
            os.write(sender, json.dumps(answer).encode())
            os.close(sender)

    code = 1
    try:
        os.chdir("/")
        _redirect(log_path(options.folder))
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", force=True)
        run_mount(options, ready=lambda: say({"pid": os.getpid()}))
        code = 0
    except PaddleFlowError as error:
        say({"message": error.message, "code": error.code, "hint": error.hint})
    except BaseException as error:
        log.exception("the mount on %s ended", options.folder)
        say({"message": f"mounting on {options.folder} failed: {error}", "code": "", "hint": _see_log(options)})
    finally:
        sys.stderr.flush()
        os._exit(code)


def _redirect(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    empty = os.open(os.devnull, os.O_RDONLY)
    written = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for source, target in ((empty, 0), (written, 1), (written, 2)):
        os.dup2(source, target)


def log_path(folder: Path) -> Path:
    return control_path(folder).with_suffix(".log")


def _see_log(options: MountOptions) -> str:
    return f"see {log_path(options.folder)}"
