"""Attributes of files that live in a store: how they travel as metadata of objects, and the nodes that hold them in memory.

An object without such metadata (written by somebody else) gets the mount's defaults. `Node` is one file or folder that is
known; `Nodes` gives them out by number and keeps their number bounded. The metadata cache is the tree of nodes itself: what
was asked of the store is believed for the mount's `ttl`.
"""

from __future__ import annotations

import base64
import errno
import json
import stat
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paddleflow.fs import kernel
from paddleflow.fs.blocks import BlockFile
from paddleflow.fs.kernel import Attributes
from paddleflow.objects.store import Entry, Kind

MOST_METADATA = 1900  #: bytes; S3 takes 2,048 with names
MOST_NODES = 500_000  #: known at once; beyond, those that the kernel has forgotten go
SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Defaults:
    """What objects get that carry no attributes."""

    uid: int
    gid: int
    file_mode: int = 0o644
    folder_mode: int = 0o755


class Node:
    """A file, folder or symbolic link, with what is known of it."""

    __slots__ = (
        "atime", "checked_at", "children", "clean_as", "commits", "ctime", "fd", "file", "gid", "handles", "id", "kept_tag", "listed_at",
        "lock", "lookups", "mode", "modified_at", "mtime", "name", "parent", "pending", "size", "staged", "tag",
        "target", "uid", "unlinked", "uploading", "writers", "xattrs",
    )  # fmt: skip

    def __init__(self, number: int, parent: Node | None, name: str, mode: int) -> None:
        self.id, self.parent, self.name, self.mode = number, parent, name, mode
        self.uid = self.gid = self.size = 0
        self.atime = self.mtime = self.ctime = 0
        self.tag = ""  #: of the version in the store; empty: not there (yet)
        self.modified_at = 0.0  #: when the store says that it was written
        self.target = b""  #: of a symbolic link
        self.xattrs: dict[str, bytes] = {}
        self.lookups = 0
        self.checked_at = 0.0  #: when the store was last asked; 0: attributes are not known yet
        self.children: dict[str, Node] = {}
        self.listed_at = 0.0  #: when the children were last listed, all of them
        self.unlinked = False
        # content while it is open or being written
        self.lock = threading.RLock()
        self.uploading = threading.RLock()  #: held while the store is asked about this file; taken before `lock`
        self.handles = self.writers = 0
        self.file: BlockFile | None = None
        self.fd = -1
        self.staged: Path | None = None  #: where the content lies while it may be written to
        self.clean_as: tuple[int, int] | None = None  #: size and time of the staged file when the store had the same
        self.commits = 0  #: how often it was acknowledged
        self.pending = False  #: acknowledged, on its way to the store
        self.kept_tag = ""  #: the version that was last opened, and that the kernel may have cached

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)

    @property
    def is_local(self) -> bool:
        """Whether this machine knows better than the store."""
        return self.staged is not None or self.pending

    def key(self) -> str:
        parts: list[str] = []
        node: Node | None = self
        while node is not None and node.parent is not None:
            parts.append(node.name)
            node = node.parent
        return "/".join(reversed(parts))

    def attributes(self) -> Attributes:
        size = len(self.target) if self.target else 4096 if self.is_folder else self.size
        links = 0 if self.unlinked else 2 if self.is_folder else 1
        blocks = (size + 511) // 512
        return Attributes(
            self.id, size, blocks, self.atime, self.mtime, self.ctime, self.mode, links, self.uid, self.gid
        )

    def metadata(self) -> dict[str, str]:
        """As it travels with the object. OSError ENOSPC when a store could not hold it."""
        found = {"pf-mode": f"{self.mode:o}", "pf-uid": str(self.uid), "pf-gid": str(self.gid)}
        found |= {"pf-mtime": str(self.mtime), "pf-atime": str(self.atime)}
        if self.target:
            found["pf-target"] = base64.b64encode(self.target).decode()
        if self.xattrs:
            found["pf-xattrs"] = json.dumps(
                {name: base64.b64encode(value).decode() for name, value in self.xattrs.items()}, separators=(",", ":")
            )
        if sum(len(name) + len(value) for name, value in found.items()) > MOST_METADATA:
            raise OSError(errno.ENOSPC, "more attributes than an object can carry")
        return found

    def apply(self, entry: Entry, defaults: Defaults) -> None:
        """Take over what the store says, with the metadata of the entry."""
        folder = entry.kind is Kind.FOLDER
        words = entry.metadata
        kind = stat.S_IFDIR | defaults.folder_mode if folder else stat.S_IFREG | defaults.file_mode
        written = int(entry.modified_at * SECOND)
        mode = _number(words, "pf-mode", kind, 8)
        if stat.S_ISDIR(mode) != folder:
            mode = kind  # an object that was copied to where it does not belong
        self.mode = mode
        self.uid, self.gid = _number(words, "pf-uid", defaults.uid), _number(words, "pf-gid", defaults.gid)
        self.mtime = _number(words, "pf-mtime", written)
        self.atime = _number(words, "pf-atime", self.mtime)
        self.ctime = max(self.ctime, written, 0)
        self.size, self.tag, self.modified_at = entry.size, entry.tag, entry.modified_at
        self.target = _decoded(words.get("pf-target", "")) if stat.S_ISLNK(mode) else b""
        self.xattrs = _xattrs(words.get("pf-xattrs", ""))


class Nodes:
    """Nodes by number."""

    def __init__(self, root: Node) -> None:
        self.root = root
        self._by_id = {root.id: root}
        self._lock = threading.Lock()
        self._next = kernel.ROOT + 1

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, number: int) -> Node:
        try:
            return self._by_id[number]
        except KeyError:
            raise OSError(errno.ESTALE, "stale node") from None

    def add(self, parent: Node, name: str, mode: int) -> Node:
        with self._lock:
            node = Node(self._next, parent, name, mode)
            self._next += 1
            self._by_id[node.id] = parent.children[name] = node
            return node

    def forget(self, number: int, count: int) -> None:
        with self._lock:
            node = self._by_id.get(number)
            if node is None:
                return
            node.lookups -= count
            if node.lookups <= 0 and (node.unlinked or len(self._by_id) > MOST_NODES):
                self._drop(node)

    def remove(self, node: Node) -> None:
        """The name is gone; the node stays while the kernel or an open file knows it."""
        with self._lock:
            node.unlinked = True
            if node.parent is not None and node.parent.children.get(node.name) is node:
                del node.parent.children[node.name]
            if node.lookups <= 0:
                self._drop(node)

    def _drop(self, node: Node) -> None:
        if node.parent is None or node.handles or node.is_local or node.children:
            return
        self._by_id.pop(node.id, None)
        if node.parent.children.get(node.name) is node:
            del node.parent.children[node.name]
            node.parent.listed_at = 0.0  # no longer all of them


def _number(words: Mapping[str, str], name: str, default: int, base: int = 10) -> int:
    try:
        return int(words[name], base)
    except (KeyError, ValueError):
        return default


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""


def _xattrs(text: str) -> dict[str, bytes]:
    try:
        found = json.loads(text) if text else {}
        return {str(name): _decoded(str(value)) for name, value in found.items()}
    except (ValueError, AttributeError):
        return {}
