"""Storages of a pod, by a container beside the job's: python3 -m paddleflow.fs.sidecar DOCUMENT

The document (`runtimes.kubernetes.storages`) names the storages and says whether they are mounted, or the inputs of a step are copied.
The file `ready` tells the kubelet that the job's container may start. SIGTERM comes when that has ended: then it unmounts, or
stores the outputs. What went wrong is the container's termination message; the exit code says whether trying again makes sense. The kubelet
starts the container again in either case: after a final end it only repeats the first message.

A mount is made below a folder of the node, for only so can another container see it. Mounts there whose process is gone (a pod that was killed
with its container) are unmounted by the next container.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from types import FrameType

from paddleflow.base.values import dataclass
from paddleflow.errors import Invalid, PaddleFlowError
from paddleflow.fs import device
from paddleflow.fs.background import start_mount
from paddleflow.fs.options import MountOptions
from paddleflow.objects import artifact_copies
from paddleflow.objects.served import ServedStore
from paddleflow.objects.store import RETRYABLE, ObjectStore
from paddleflow.objects.urls import open_store
from paddleflow.objects.wrappers import Retrying

AGAIN, FINAL = 1, 2  #: exit codes
ANSWER = 60.0  #: seconds until a mount must have come up
END = 2.0  #: seconds that the process behind a mount has to end; the kubelet holds mounts of which a job sees a part
CACHE = 4 * 2**30  #: bytes of the node's disk, for all storages of the pod
_SAID = Path("/dev/termination-log")
_MOST_SAID = 4000  #: bytes; the kubelet keeps 4,096


@dataclass(frozen=True, slots=True)
class PodStorage:
    """One storage of the document."""

    storage: str  #: id
    folder: Path
    url: str
    properties: Mapping[str, str]
    sub_path: str
    read_only: bool
    inputs: Sequence[str]
    outputs: Sequence[str]


@dataclass(frozen=True, slots=True)
class Document:
    way: str
    home: Path
    ready: Path
    storages: Sequence[PodStorage]


def read_document(text: str) -> Document:
    found = json.loads(text)
    storages = [
        PodStorage(
            each["storage"], Path(each["folder"]), each["url"], each["properties"], each["subPath"],
            each["readOnly"], each["inputs"], each["outputs"],
        )
        for each in found["storages"]
    ]  # fmt: skip
    return Document(found["way"], Path(found["home"]), Path(found["ready"]), storages)


# ---- mounts --------------------------------------------------------------------------------------------------------


def mount_all(document: Document, pids: list[int]) -> None:
    """Mount the storages, each on its folder; `pids` gets the processes behind them."""
    for each in {storage.folder.parent.parent for storage in document.storages}:
        remove_dead(each)
    for storage in document.storages:
        with suppress(PaddleFlowError):  # left by this container's life before
            device.unmount(storage.folder, force=True)
        storage.folder.mkdir(parents=True, exist_ok=True)
        pids.append(start_mount(mount_options(document, storage), ANSWER))
        base = storage.folder / storage.sub_path
        if not base.exists():
            raise Invalid(f"mount source not found: {storage.sub_path} of {storage.storage}")
        if not storage.read_only:
            artifact_copies.make_places(base, storage.outputs)


def mount_options(document: Document, storage: PodStorage) -> MountOptions:
    """How a storage is mounted; all of the pod share the cache. Pure."""
    return MountOptions(
        storage.url,
        storage.folder,
        read_only=storage.read_only,
        allow_other=True,
        # The file service keeps no modes; who may use the storage was decided when the job was submitted.
        properties={**storage.properties, "fileMode": "0666", "dirMode": "0777"},
        cache_folder=document.home / "cache" / storage.folder.name,
        cache_size=CACHE // len(document.storages),
    )


def remove_dead(folder: Path) -> None:
    """Take away mounts below a folder of the node that nobody answers for."""
    for each in map(Path, device.mounted_folders()):
        if not each.is_relative_to(folder):
            continue
        try:
            os.statvfs(each)
        except OSError as error:
            if error.errno == errno.ENOTCONN:
                with suppress(PaddleFlowError):
                    device.unmount(each, force=True)
                _remove_folder(each)


def unmount_all(document: Document, pids: Sequence[int]) -> None:
    """The job has ended: every file that it closed is in the store, so nothing is lost by not waiting for ever."""
    for storage in document.storages:
        with suppress(PaddleFlowError):
            device.unmount(storage.folder, force=True)
    until = time.monotonic() + END
    while time.monotonic() < until and any(Path(f"/proc/{pid}").exists() for pid in pids):
        time.sleep(0.05)
    for storage in document.storages:
        _remove_folder(storage.folder)


def _remove_folder(folder: Path) -> None:
    """An empty folder of a mount and the pod's around it. Never what is in them: a mount may be seen elsewhere."""
    for each in (folder, folder.parent):
        with suppress(OSError):
            each.rmdir()


# ---- copies --------------------------------------------------------------------------------------------------------


class Copies:
    """The artifacts of a step. The stores stay open while the job runs: that keeps their tokens alive."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._stores: list[tuple[PodStorage, ObjectStore]] = [
            (each, Retrying(open_store(each.url, each.properties))) for each in document.storages
        ]

    def fetch(self) -> None:
        for storage, store in self._stores:
            fetched = self._document.home / f"{storage.folder.name}.fetched"
            store.stat("")
            if fetched.exists():  # a second life of this container: the job may have changed its inputs
                continue
            artifact_copies.fetch(store, storage.folder, storage.sub_path, storage.inputs)
            artifact_copies.make_places(storage.folder, storage.outputs)
            _open_to_all(storage.folder)
            fetched.touch()

    def send(self) -> None:
        for storage, store in self._stores:
            artifact_copies.send(store, storage.folder, storage.sub_path, storage.outputs)

    def close(self) -> None:
        for _, store in self._stores:
            store.close()


def _open_to_all(folder: Path) -> None:
    """Whatever the user of the job's image is."""
    for each in folder.rglob("*"):
        with suppress(OSError):
            each.chmod(0o777 if each.is_dir() else 0o666)


# ---- the program ---------------------------------------------------------------------------------------------------


def run(document: Document, ended: Event) -> None:
    """From the start to what follows the job's end."""
    if document.way == "mount":
        pids: list[int] = []
        try:
            mount_all(document, pids)
            _wait(document, ended)
        finally:
            unmount_all(document, pids)
        return
    with _explained("its input artifacts cannot be fetched"):
        copies = Copies(document)
    try:
        with _explained("its input artifacts cannot be fetched"):
            copies.fetch()
        _wait(document, ended)
        with _explained("its output artifacts cannot be stored"):
            copies.send()
    finally:
        copies.close()


@contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except PaddleFlowError as error:
        raise type(error)(f"{what}: {error.message}", hint=error.hint) from error


def _wait(document: Document, ended: Event) -> None:
    document.ready.touch()
    while not ended.wait(1.0):
        pass


def end_mounts(document: Document) -> None:
    """Nobody will use the storages again: their tokens are given back."""
    for each in document.storages:
        with suppress(PaddleFlowError):
            store = open_store(each.url, each.properties)
            if isinstance(store, ServedStore):
                store.end_mount()
            store.close()


def main(words: Sequence[str]) -> int:
    ended = Event()

    def end(number: int, frame: FrameType | None) -> None:
        ended.set()
        if not document.ready.exists():  # the job has not begun: nothing is to be stored
            raise SystemExit(0)

    document = read_document(Path(words[0]).read_text("utf-8"))
    given_up = document.home / "given-up"  # in the pod's volume: it stays when the container starts again
    if given_up.exists():
        _say(given_up.read_text("utf-8"))
        return FINAL
    signal.signal(signal.SIGTERM, end)
    try:
        run(document, ended)
    except PaddleFlowError as error:
        _say(error.message)
        if isinstance(error, RETRYABLE):
            return AGAIN
        with suppress(OSError):
            given_up.write_text(error.message, "utf-8")
        end_mounts(document)
        return FINAL
    except OSError as error:
        _say(f"its storages cannot be prepared: {error}")
        return AGAIN
    except SystemExit:
        end_mounts(document)
        raise
    end_mounts(document)
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
    with suppress(OSError):
        _SAID.write_bytes(text.encode()[:_MOST_SAID])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
