"""The interface of stores: where artifacts, code snapshots, logs and the file system keep their bytes.

A store maps keys to objects. A key is a path without a leading slash (``runs/7/model.bin``); folders exist as far as
something lies in them, and may be made explicitly. Everything is synchronous and may be called from many threads at once;
callers that live on an event loop use a thread pool of their own.

**Errors** are those of `paddleflow.errors`, so that no caller sees a driver's exception:

    NotFound      the key is absent; never said of an object that is there but could not be read
    Forbidden     the credentials or permissions do not suffice, or a link leads out of the store      permanent
    Invalid       this store cannot hold such a key, or cannot do this (code OperationNotSupported)    permanent
    Conflict      a condition did not hold, or the key is of another kind (file, folder, device)       permanent
    TooLarge      more than the caller's bound                                                         permanent
    OverQuota     no space left in the store                                                           permanent
    Unavailable   the store did not answer, or answered that it cannot now                             try again
    TooMany       the store asks to slow down                                                          try again

**What may be called twice**: everything without a condition, except `rename`, whose source is gone then. `remove` of an absent key and
`make_folder` of an existing folder succeed. A conditional `write` that is repeated after `Unavailable` may answer `Conflict` because its own first
attempt had arrived: compare the content then.

**Atomicity**: an object is seen whole or not at all; `write` replaces it in one step, and has reached the store's disk
when it returns. `rename` is atomic only where `Capabilities.atomic_rename` says so.

`tests/contract/test_objectstore.py` checks every sentence of this page for each implementation.
"""

from __future__ import annotations

import enum
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import BinaryIO, Protocol

from paddleflow.base.values import dataclass
from paddleflow.errors import Conflict, Invalid, NotFound, TooLarge, TooMany, Unavailable

MOST_KEY_BYTES = 1024  #: what S3 allows, so that a key that one store takes can be copied to the next
MOST_NAME_BYTES = 255  #: of one part of a key, as file systems have it
MOST_SIZE = 2**63 - 1  #: bytes of a file, as file systems have it; who says more is not to be trusted
CHUNK = 4 * 2**20  #: bytes asked for at once when an object is read as a stream
TEMPORARY = ".pf-tmp-"  #: how hidden names of files that are being written begin; no store lists them
NOT_SUPPORTED = "OperationNotSupported"
TOO_LONG = "KeyTooLong"  #: code of the `Invalid` for a key, or a part of one, with too many bytes
CHANGED = "ContentChanged"  #: code of the `Conflict` for a tag that no longer holds
EXISTS = "AlreadyExists"  #: code of the `Conflict` for a key that should have been absent
BAD_CREDENTIALS = "BadCredentials"  #: code of the `Forbidden` for keys or passwords that are wrong, whatever is asked
NO_SUCH_BUCKET = "NoSuchBucket"  #: code of the `Invalid` for a store whose bucket or folder is not there

#: What trying again may help against.
RETRYABLE = (Unavailable, TooMany)


class Kind(enum.Enum):
    FILE = "file"
    FOLDER = "folder"
    OTHER = "other"  #: a device, FIFO, socket or a link that leads nowhere or outside: listed, never opened


@dataclass(frozen=True, slots=True)
class Entry:
    """What a store knows of a key."""

    key: str
    kind: Kind
    size: int = 0
    modified_at: float = 0.0
    tag: str = ""  #: changes whenever the content changes; may change without that, too. Empty for folders
    metadata: Mapping[str, str] = field(default_factory=dict)  #: filled in by `stat`, not by listings


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a store can do beyond the rest of the interface."""

    metadata: bool = False  #: keeps the words given to `write`, and `set_metadata` works
    copy: bool = False  #: `copy` happens in the store
    atomic_rename: bool = False  #: `rename` replaces the target in one step
    if_absent: bool = False  #: `write(if_absent=True)`
    if_tag: bool = False  #: `write(if_tag=…)` with no window between look and write
    tree: bool = True  #: a name is a file or a folder, never both, and only a folder has something below it
    multipart: bool = False  #: `start_upload` and its parts (`paddleflow.objects.store.MultipartStore`)


class ObjectStore(Protocol):
    """See the module's docstring for errors, atomicity and what may be called twice."""

    name: str  #: for messages: the URL without secrets
    capabilities: Capabilities

    def stat(self, key: str) -> Entry:
        """The entry of a file or folder. An empty key means the root; a slash at the end that it must be a folder."""

    def list_entries(self, folder: str = "", *, recursive: bool = False) -> Iterator[Entry]:
        """The entries of a folder, in no particular order; fetched in pages while the caller iterates.

        Not recursive: files and folders directly inside. Recursive: the files below, however deep, without following
        links. An absent folder has no entries. What is written meanwhile may or may not be seen.
        """

    def read(self, key: str, *, size: int, offset: int = 0, tag: str = "") -> bytes:
        """Up to `size` bytes from `offset`; fewer only at the object's end. With a tag: of that version, or `Conflict`."""

    def write(
        self,
        key: str,
        content: bytes | BinaryIO,
        *,
        metadata: Mapping[str, str] | None = None,
        if_absent: bool = False,
        if_tag: str = "",
    ) -> Entry:
        """Store the content as the object, whole; folders above it are made. With a condition: or `Conflict`."""

    def remove(self, key: str) -> None:
        """Remove a file. An absent one is fine; a folder is a `Conflict`."""

    def make_folder(self, key: str, *, metadata: Mapping[str, str] | None = None) -> None:
        """Make a folder, and those above it. With metadata: of an existing one it is replaced."""

    def remove_folder(self, key: str) -> None:
        """Remove an empty folder. `Conflict` when something lies in it; an absent one is fine."""

    def copy(self, source: str, target: str) -> Entry:
        """Copy a file with its metadata, replacing the target."""

    def rename(self, source: str, target: str) -> Entry:
        """Move a file, replacing the target."""

    def set_metadata(self, key: str, metadata: Mapping[str, str]) -> Entry:
        """Replace the metadata of a file; its content stays."""

    def close(self) -> None:
        """Give back descriptors and connections. May be called twice."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an upload that the store has."""

    number: int  #: from 1
    tag: str


class MultipartStore(ObjectStore, Protocol):
    """A store that takes large objects by parts, which may come in any order, at once, and again after a crash."""

    def start_upload(self, key: str, *, metadata: Mapping[str, str] | None = None) -> str:
        """The id of a new upload."""

    def write_part(self, key: str, upload: str, number: int, content: bytes) -> Part:
        """Store one part; the same number again replaces it."""

    def list_parts(self, key: str, upload: str) -> list[Part]:
        """What has arrived. `NotFound` for an upload that was finished or given up."""

    def finish_upload(
        self, key: str, upload: str, parts: list[Part], *, if_absent: bool = False, if_tag: str = ""
    ) -> Entry:
        """Make the object of its parts, whole. With a condition: or `Conflict`, and the upload stays."""

    def abort_upload(self, key: str, upload: str) -> None:
        """Give up an upload; one that is gone already is fine."""


def check_key(key: str) -> str:
    """The key, or `Invalid` in words. Every store calls this first, so that all refuse the same."""
    parts = key.split("/")
    if not key or any(part in ("", ".", "..") for part in parts):
        wanted = "parts separated by single slashes, none of them empty, '.' or '..'"
        raise Invalid(f"key {shorten(key)} cannot be stored: it must consist of {wanted}")
    if "\0" in key:
        raise Invalid(f"key {shorten(key)} cannot be stored: it holds a zero byte")
    try:
        encoded = key.encode()
    except UnicodeEncodeError as error:
        raise Invalid(f"key {shorten(key)} cannot be stored: it is not Unicode text") from error
    if len(encoded) > MOST_KEY_BYTES:
        problem = f"{len(encoded)} bytes, at most {MOST_KEY_BYTES}"
        raise Invalid(f"key {shorten(key)} cannot be stored: {problem}", code=TOO_LONG)
    if len(encoded) > MOST_NAME_BYTES and any(len(part.encode()) > MOST_NAME_BYTES for part in parts):
        problem = f"a part has more than {MOST_NAME_BYTES} bytes"
        raise Invalid(f"key {shorten(key)} cannot be stored: {problem}", code=TOO_LONG)
    return key


def check_folder_key(key: str) -> str:
    """The same for a folder; the root is an empty key. A slash at the end is allowed and taken off."""
    key = key.removesuffix("/")
    return check_key(key) if key else ""


def is_below(key: str, folder: str) -> bool:
    """Whether what a listing calls an entry can be one: the names are those of a server, which may make up any. `folder` ends with a slash."""
    name = key[len(folder) :]
    return key.startswith(folder) and "\0" not in name and not any(part in ("", ".", "..") for part in name.split("/"))


def check_size(key: str, size: int) -> int:
    """A size that a server says; `Unavailable` for one that no file can have."""
    if not 0 <= size <= MOST_SIZE:
        raise Unavailable(f"the size of {shorten(key)} is said to be {size}, which no file has")
    return size


def check_range(offset: int, size: int) -> None:
    if offset < 0 or size < 0:
        raise Invalid(f"range of {size} bytes from {offset}: neither may be negative")


def shorten(text: str) -> str:
    return repr(text if len(text) <= 120 else text[:117] + "...")


def not_supported(store: str, what: str) -> Invalid:
    return Invalid(f"{store} cannot {what}", code=NOT_SUPPORTED)


def changed(key: str) -> Conflict:
    return Conflict(
        f"{shorten(key)} has changed since it was looked at", code=CHANGED, hint="read it again and repeat the change"
    )


def absent(store: str, key: str) -> NotFound:
    return NotFound(f"{shorten(key)} in {store} does not exist")


def exists_already(store: str, key: str) -> Conflict:
    return Conflict(f"{shorten(key)} in {store} exists already", code=EXISTS)


def not_a_file(store: str, key: str, kind: Kind = Kind.FOLDER) -> Conflict:
    return Conflict(f"{shorten(key)} in {store} is a {kind.value}, not a file")


def not_a_folder(store: str, key: str) -> Conflict:
    return Conflict(f"{shorten(key)} in {store} is a file, not a folder")


def not_empty(store: str, key: str) -> Conflict:
    return Conflict(f"folder {shorten(key)} in {store} is not empty", code="FolderNotEmpty")


def refuse_metadata(store: str, metadata: Mapping[str, str] | None) -> None:
    """For a store that keeps none."""
    if metadata:
        raise not_supported(store, "keep metadata")


def check_target(store: str, key: str, old: Entry | None, *, if_absent: bool, if_tag: str) -> None:
    """Whether a file may take this name, where `old` is what has it now: `Conflict` in words otherwise."""
    if old is not None and old.kind is not Kind.FILE:
        raise not_a_file(store, key, old.kind)
    if if_absent and old is not None:
        raise exists_already(store, key)
    if if_tag and (old is None or old.tag != if_tag):
        raise changed(key)


def stat_file(store: ObjectStore, key: str) -> Entry:
    """The entry of a file; `Conflict` for what is none."""
    entry = store.stat(key)
    if entry.kind is not Kind.FILE:
        raise not_a_file(store.name, key, entry.kind)
    return entry


def iterate_content(store: ObjectStore, key: str, *, chunk: int = CHUNK) -> Iterator[bytes]:
    """The content in pieces, all of one version: `Conflict` when the object is replaced meanwhile."""
    entry = stat_file(store, key)
    offset = 0
    while offset < entry.size:
        piece = store.read(key, offset=offset, size=chunk, tag=entry.tag)
        if not piece:
            raise Unavailable(f"{shorten(key)} in {store.name} ended after {offset} of {entry.size} bytes")
        offset += len(piece)
        yield piece


def copy_through_this_machine(store: ObjectStore, source: str, target: str) -> Entry:
    """For a store that cannot copy by itself."""
    check_key(target)
    stat_file(store, check_key(source))
    with tempfile.TemporaryFile() as staged:
        for piece in iterate_content(store, source):
            staged.write(piece)
        staged.seek(0)
        return store.write(target, staged)


def read_whole(store: ObjectStore, key: str, *, most: int) -> bytes:
    """The content of a file, if it has at most `most` bytes; `TooLarge` otherwise."""
    content = store.read(key, size=most + 1)
    if len(content) > most:
        raise TooLarge(f"{shorten(key)} in {store.name} has more than {most} bytes, which is the most that is read")
    return content
