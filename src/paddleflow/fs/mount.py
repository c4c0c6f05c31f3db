"""The process of a mount from options to its end: choose the tree, mount, serve. A supervisor and its worker (`supervisor`).

`paddleflow fs mount --foreground` calls `run_mount`; processes that `background` starts call `main`.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from types import FrameType
from urllib.parse import unquote

from paddleflow.base.names import nearest
from paddleflow.errors import BY_STATUS, Conflict, Invalid, PaddleFlowError, Unavailable
from paddleflow.fs import device
from paddleflow.fs.background import log_path, main_command
from paddleflow.fs.blocks import DataCache
from paddleflow.fs.index import Index
from paddleflow.fs.meta import Defaults
from paddleflow.fs.options import MountOptions, RemoteOptions, load_options
from paddleflow.fs.plain import mountable
from paddleflow.fs.posix import PosixTree
from paddleflow.fs.remote import RemoteTree
from paddleflow.fs.request_lock import RequestLock
from paddleflow.fs.session import Session
from paddleflow.fs.state import LAYOUT, State, StateFiles, make_state_files
from paddleflow.fs.supervisor import Supervisor, Work, open_descriptors
from paddleflow.fs.tree import Tree
from paddleflow.fs.writer import LATER, Staging
from paddleflow.objects.links import LinkedStore
from paddleflow.objects.store import ObjectStore
from paddleflow.objects.urls import SCHEMES, load_driver, open_native_folder, open_store
from paddleflow.objects.wrappers import Figures, Metered, RateLimit, RateLimited, Retrying

log = logging.getLogger(__name__)


def open_tree(options: MountOptions, state: State, request_lock: RequestLock) -> Tree:
    """The tree that a URL names."""
    scheme, separator, rest = options.url.partition("://")
    match scheme.lower() if separator else "":
        case "file" | "local" if not options.links:
            root = Path("/" + unquote(rest).lstrip("/"))
            # a worker that takes a mount over must not touch the folder: nobody would answer
            if state.agreed.device < 0 and options.folder.resolve() == root.resolve():
                raise Invalid(f"{options.folder} would be mounted on itself", hint="choose another folder to mount on")
            return _open_folder(root, options, state)
        case "":
            hint = "write it as file:///data/team or s3://bucket/prefix"
            raise Invalid(f"{options.url!r} is not a URL", hint=hint)
        case known if known in SCHEMES:
            if SCHEMES[known].native is None or options.links:
                return _open_remote(options, state, request_lock)
            if state.agreed.root < 0:  # the next worker continues with the same mount: its nodes are files of it
                folder = open_native_folder(options.url, options.properties, wait=True)
                assert folder is not None, f"{known} is mounted by no client"
                state.agreed.root = folder
            return _open_folder(Path(f"/proc/self/fd/{state.agreed.root}"), options, state)
        case _:
            raise Invalid(f"type {scheme!r} cannot be mounted", hint=nearest(scheme, SCHEMES))


def _open_folder(root: Path, options: MountOptions, state: State) -> Tree:
    seconds = 1.0 if options.seconds is None else options.seconds
    return PosixTree(root, state, seconds=seconds, immutable=options.immutable)


def _open_store(options: MountOptions, figures: Figures) -> ObjectStore:
    """The store of a URL with the links inside it, each with retries; all share the rate limit and the figures."""
    limit = RateLimit(calls=options.requests, bytes_=options.bandwidth)

    def open_one(url: str, properties: Mapping[str, str]) -> ObjectStore:
        return mountable(Metered(Retrying(RateLimited(open_store(url, properties), limit)), figures))

    host = open_one(options.url, options.properties)
    links = {each.path: open_one(each.url, each.properties) for each in options.links}
    return LinkedStore(host, links) if links else host


def _open_remote(options: MountOptions, state: State, request_lock: RequestLock) -> Tree:
    figures = Figures()
    store = _open_store(options, figures)
    again = state.agreed.device >= 0
    if not again:
        store.stat("")  # says at once what is wrong with name, port, keys or bucket
    folder = options.cache_folder or default_cache(options.url, options.properties)
    folders = [folder, *options.more_cache_folders]
    for each in folders:
        _lock_folder(each, options.folder)
    staging = Staging([each / "staging" for each in folders], store, later=LATER)
    if not (again or options.read_only or options.immutable) and (sent := staging.recover()):
        log.info("%s files of an earlier mount were uploaded", sent)
    return RemoteTree(
        store,
        DataCache(
            [each / "data" for each in folders],
            options.cache_size,
            free_floor=options.free_space,
            request_lock=request_lock,
        ),
        staging,
        _defaults(options.properties),
        RemoteOptions(
            ttl=10.0 if options.seconds is None else options.seconds,
            immutable=options.immutable,
            strict=options.strict,
            writeback=options.writeback,
            plain=options.plain or not (store.capabilities.metadata or options.links),
        ),
        state,
        Index(folder / "names.db", again=again, keep=options.keep_metadata),
        request_lock,
        figures,
    )


def _defaults(properties: Mapping[str, str]) -> Defaults:
    usual = Defaults(os.getuid(), os.getgid())
    modes = {"file_mode": properties.get("fileMode"), "folder_mode": properties.get("dirMode")}
    return replace(usual, **{name: int(mode, 8) for name, mode in modes.items() if mode})


def default_cache(url: str, properties: Mapping[str, str]) -> Path:
    """Where a URL is cached if nobody says so."""
    word = hashlib.sha256(f"{properties.get('endpoint', '')} {url}".encode()).hexdigest()[:16]
    return Path.home() / ".cache" / "paddleflow" / "fs" / word


def _lock_folder(folder: Path, place: Path) -> None:
    """One mount per cache folder: two would remove each other's files. Held until the process ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with suppress(OSError):  # for the message only; a disk may be full
            os.ftruncate(lock, 0)
            os.pwrite(lock, os.fsencode(place), 0)
    except BlockingIOError as error:
        other = Path(os.fsdecode(os.pread(lock, 4096, 0)))
        if other.is_absolute() and not device.is_mounted(other):
            message = f"cache folder {folder} is in use: what was written to the mount on {other} is being uploaded"
            raise Conflict(message, hint="mount again in a moment") from error
        by, hint = (
            f"the mount on {other}" if other.is_absolute() else "another mount",
            "give this mount another --cache-dir",
        )
        raise Conflict(f"cache folder {folder} is in use by {by}", hint=hint) from error
    except OSError as error:
        raise Unavailable(
            f"cache folder {folder} cannot be used: {error.strerror}", hint="choose another one with --cache-dir"
        ) from error


def make_worker(options: MountOptions, say: Callable[[dict[str, object]], None]) -> Work:
    """What a worker does: mount, or take a mount over, and serve. `say` reports the result to the process that waits.

    All that workers need is imported here, by the supervisor: a later one must not find half of another program.
    """
    for url in (options.url, *(each.url for each in options.links)):
        load_driver(url)

    def work(state: State, started: Callable[[], None]) -> None:
        if state.agreed.device >= 0:  # the first worker has said so; the descriptor is somebody else's now
            _serve(options, state, started)
            return

        def ready() -> None:
            started()
            say({"pid": os.getppid()})

        try:
            _serve(options, state, ready)
        except PaddleFlowError as error:
            say({"message": error.message, "code": error.code, "hint": error.hint, "status": error.status})
            raise
        except BaseException as error:
            message = f"mounting on {options.folder} failed: {error}"
            say({"message": message, "code": "", "hint": _see_log(options), "status": 500})
            raise

    return work


def _serve(options: MountOptions, state: State, ready: Callable[[], None]) -> None:
    read_only = options.read_only or options.immutable
    again = state.agreed.device >= 0
    if again:
        opened = device.Device(state.agreed.device)
    elif device.is_mounted(options.folder):
        raise Conflict(f"{options.folder} has a mount already", hint=f"paddleflow fs umount {options.folder}")
    request_lock = RequestLock()
    tree = open_tree(options, state, request_lock)
    if not again:
        opened = device.mount(
            options.url,
            options.folder,
            read_only=read_only,
            allow_other=options.allow_other,
            noexec=options.noexec,
        )
        state.agreed.device = opened.fd
        state.save_agreed()
    session = Session(
        tree,
        opened,
        options.folder,
        options.url,
        state,
        request_lock,
        read_only=read_only,
        passthrough=options.passthrough,
    )

    def end(number: int, frame: FrameType | None) -> None:
        with suppress(PaddleFlowError):
            device.unmount(options.folder, force=True)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    try:
        session.serve(threads=options.threads, ready=ready)
    finally:
        opened.close()


def run_mount(options: MountOptions) -> None:
    """Mount and serve until it is unmounted, or a signal asks to end. This process is the supervisor."""
    receiver, sender = os.pipe()
    code = Supervisor(make_worker(options, _sayer(sender)), make_state_files(), (receiver,)).run()
    with suppress(OSError):
        os.close(sender)
    with open(receiver, "rb") as pipe:
        said = pipe.read()
    answer = json.loads(said) if said else {}
    if code and "message" in answer:
        raise BY_STATUS.get(int(answer["status"]), PaddleFlowError)(
            answer["message"], code=answer["code"], hint=answer["hint"]
        )
    if code:
        raise Unavailable(f"the mount on {options.folder} ended with {code}")


def _sayer(sender: int) -> Callable[[dict[str, object]], None]:
    """Sends one answer, the first worker's."""

    def say(answer: dict[str, object]) -> None:
        with suppress(OSError):
            os.write(sender, json.dumps(answer).encode())
            os.close(sender)

    return say


def _see_log(options: MountOptions) -> str:
    return f"see {log_path(options.folder)}"


def main(words: list[str]) -> int:
    """``--layout``: which state this program can take over. Otherwise descriptors: of the options, and of whom to tell or of a state."""
    if words == ["--layout"]:
        print(LAYOUT)
        return 0
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", force=True)
    options_fd = int(words[0])
    options = load_options(os.pread(options_fd, 1 << 20, 0).decode())
    if words[1].startswith("{"):
        files, say = StateFiles(**json.loads(words[1])), _tell_nobody()
    else:
        if os.fork():
            return 0
        files, say = make_state_files(), _sayer(int(words[1]))

    def reload() -> None:
        for each in open_descriptors():
            with suppress(OSError):
                os.set_inheritable(each, True)
        os.execv(sys.executable, main_command(str(options_fd), json.dumps(asdict(files))))  # noqa: S606 - no shell is wanted

    return Supervisor(make_worker(options, say), files, (options_fd,), reload).run()


def _tell_nobody() -> Callable[[dict[str, object]], None]:
    """A mount that was taken over has nobody who waits."""
    return lambda answer: None
