"""Attributes of files that live in a store: how they travel as metadata of objects, and the nodes that hold them in memory.

An object without such metadata (written by another program) gets the mount's defaults. `Node` is one file or folder that is
in use; `Nodes` gives them out by number. What is known of all others are rows of the `index`: a node is made of its row when it is
asked for, and is gone when nobody uses it any more. What was asked of the store is believed for the mount's `ttl`.
"""

from __future__ import annotations

import base64
import errno
import json
import stat
import struct
import threading
from collections import OrderedDict, deque
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from weakref import WeakValueDictionary

from paddleflow.base.values import dataclass
from paddleflow.fs.blocks import BlockFile
from paddleflow.fs.index import Index, Row
from paddleflow.fs.kernel import Attributes
from paddleflow.fs.state import State
from paddleflow.objects.store import Entry, Kind

MOST_METADATA = 1900  #: bytes; S3 takes 2,048 with names
MOST_RECENT = 20_000  #: nodes that stay in memory although nobody uses them
MOST_UNLINKED = 10_000  #: the same of those that have no name any more
SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Defaults:
    """What objects get that carry no attributes."""

    uid: int
    gid: int
    file_mode: int = 0o644
    folder_mode: int = 0o755

    def of(self, mode: int) -> tuple[int, int, int]:
        """Mode, owner and group of something of this kind."""
        return stat.S_IFMT(mode) | (self.folder_mode if stat.S_ISDIR(mode) else self.file_mode), self.uid, self.gid


class Node:
    """A file, folder or symbolic link, with what is known of it."""

    __slots__ = (
        "__weakref__", "atime", "checked_at", "clean_as", "commits", "ctime", "fd", "file", "gid", "handles", "id",
        "kept", "kept_tag", "listed_at", "lock", "mode", "modified_at", "mtime", "name", "parent", "pending", "saved",
        "sending", "shown_at", "size", "staged", "tag", "target", "uid", "unlinked", "uploading", "writers", "xattrs",
    )  # fmt: skip

    def __init__(self, number: int, parent: Node | None, name: str, mode: int) -> None:
        self.id, self.parent, self.name, self.mode = number, parent, name, mode
        self.uid = self.gid = self.size = 0
        self.atime = self.mtime = self.ctime = 0
        self.tag = ""  #: of the version in the store; empty: not there (yet)
        self.modified_at = 0.0  #: when the store says that it was written
        self.target = b""  #: of a symbolic link
        self.xattrs: dict[str, bytes] = {}
        self.saved: Row | None = None  #: as the index has it
        self.checked_at = 0.0  #: when the store was last asked; 0: attributes are not known; below: not confirmed
        self.listed_at = 0.0  #: when the children were last listed, all of them
        self.shown_at = 0.0  #: `listed_at` of the listing that the kernel was told, and may have cached
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
        self.sending = False  #: an upload of it is under way, or waits for its turn
        self.kept: Path | None = None  #: the file that was acknowledged, if it is not `staged` any more
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
        self.mtime = _number(words, "pf-mtime", written, bits=64)
        self.atime = _number(words, "pf-atime", self.mtime, bits=64)
        self.ctime = max(self.ctime, written, 0)
        self.size, self.tag, self.modified_at = entry.size, entry.tag, entry.modified_at
        self.target = _decoded(words.get("pf-target", "")) if stat.S_ISLNK(mode) else b""
        self.xattrs = _xattrs(words.get("pf-xattrs", ""))


#: Number of the folder above (0: unlinked), mode, owners, size, times, when the store was asked, length of the tag. Tag and name follow.
_NAME = struct.Struct("<QIIIQqqqddH")


class _Content(NamedTuple):
    """A node that has content here, and where that is written down for a later worker."""

    node: Node
    slot: int
    name: int  #: on the heap
    content: int  #: on the heap


class Nodes:
    """Nodes by number, and by folder and name. Those with content here are written down for a later worker."""

    def __init__(self, root: Node, state: State, index: Index) -> None:
        self.root, self.index = root, index
        self._lock = threading.RLock()
        self._table, self._heap = state.nodes, state.heap
        self._live: WeakValueDictionary[int, Node] = WeakValueDictionary({root.id: root})
        self._named: WeakValueDictionary[tuple[int, str], Node] = WeakValueDictionary()
        self._recent: deque[Node] = deque(maxlen=MOST_RECENT)
        self._unlinked: OrderedDict[int, Node] = OrderedDict()  #: that the kernel may know
        self._contents: dict[int, _Content] = {}

    def __len__(self) -> int:
        return len(self.index) + 1

    def live(self, number: int) -> Node | None:
        """The node if it is in memory."""
        return self._live.get(number)

    def get(self, number: int) -> Node:
        node = self._live.get(number)
        if node is not None:
            return node
        with self._lock:
            row = self.index.get(number)
            if row is None:
                raise OSError(errno.ESTALE, "stale node")
            return self._revive(row)

    def child(self, folder: Node, name: str) -> Node | None:
        """The node of a name that is known."""
        node = self._named.get((folder.id, name))
        if node is not None:
            return node
        with self._lock:
            row = self.index.find(folder.id, name)
            return None if row is None else self._revive(row)

    def _revive(self, row: Row) -> Node:
        """With the lock held."""
        node = self._live.get(row.id)
        if node is not None:
            return node
        node = Node(row.id, self.get(row.parent), row.name, row.mode)
        node.uid, node.gid, node.size = row.uid, row.gid, row.size
        node.atime, node.mtime, node.ctime = row.atime, row.mtime, row.ctime
        node.modified_at, node.checked_at, node.listed_at = row.modified_at, row.checked_at, row.listed_at
        node.tag, node.kept_tag, node.saved = row.tag, row.tag if row.kept else "", row
        if row.more:
            node.target, node.xattrs = _read_more(row.more)
        self._remember(node)
        return node

    def _remember(self, node: Node) -> None:
        assert node.parent is not None
        self._live[node.id] = self._named[node.parent.id, node.name] = node
        self._recent.append(node)

    def add(self, parent: Node, name: str, mode: int) -> Node:
        """A node whose row is written with its first `rewrite`."""
        with self._lock:
            node = Node(self.index.new_number(), parent, name, mode)
            self._remember(node)
            return node

    def count(self, node: Node) -> int:
        """The number of a node that the kernel gets to know."""
        if node.saved is None or node.is_local:
            self.rewrite(node)
        return node.id

    def rewrite(self, node: Node) -> None:
        """Name or attributes have changed."""
        with self._lock:
            if node.parent is not None and not node.unlinked:
                row = row_of(node)
                if row != node.saved:
                    self.index.put([row])
                    node.saved = row
            known = self._contents.get(node.id)
            if known is not None:
                at = self._heap.put(name_record(node))
                self._table.set_name(known.slot, at)
                self._contents[node.id] = known._replace(name=at)
                self._heap.remove(known.name)

    def move(self, node: Node, parent: Node, name: str) -> None:
        """Another name."""
        with self._lock:
            self._forget_name(node)
            node.parent, node.name = parent, name
            self._live[node.id] = self._named[parent.id, name] = node
            self.rewrite(node)

    def _forget_name(self, node: Node) -> None:
        if node.parent is not None and self._named.get((node.parent.id, node.name)) is node:
            del self._named[node.parent.id, node.name]

    def describe(self, node: Node, content: bytes) -> None:
        """Write down what is open, with the node's descriptor; nothing: nothing is open any more."""
        with self._lock:
            known = self._contents.get(node.id)
            if not content:
                if known is not None:
                    self._table.remove(known.slot)
                    self._heap.remove(known.name)
                    self._heap.remove(known.content)
                    del self._contents[node.id]
                return
            at = self._heap.put(content)
            if known is None:
                slot, name = self._table.take_slot(), self._heap.put(name_record(node))
                self._table.write(slot, node.id, 0, node.fd, name, at)
                self._contents[node.id] = _Content(node, slot, name, at)
            else:
                self._table.set_fd(known.slot, node.fd)
                self._table.set_content(known.slot, at)
                self._contents[node.id] = known._replace(content=at)
                self._heap.remove(known.content)

    def with_content(self) -> list[Node]:
        with self._lock:
            return [each.node for each in self._contents.values()]

    def forget(self, number: int) -> None:
        """The kernel does not know a node any more."""
        self._unlinked.pop(number, None)

    def remove(self, node: Node) -> None:
        """The name is gone; the node stays while the kernel or an open file knows it."""
        with self._lock:
            node.unlinked = True
            self._forget_name(node)
            self.index.remove([node.id])
            self._unlinked[node.id] = node
            if len(self._unlinked) > MOST_UNLINKED:
                self._unlinked.popitem(last=False)
            self.rewrite(node)

    def restore(self, state: State) -> list[tuple[Node, bytes, bool]]:
        """Nodes with content of a worker that is gone, how it was described, and whether the folder above is known."""
        records = state.nodes.by_slot()
        self._heap.restore({at for each in records.values() for at in (each.name, each.content) if at})
        found: list[tuple[Node, bytes, bool]] = []
        for slot, record in records.items():
            above, node = read_record(record.node, self.root, self._heap.get(record.name))
            row = self.index.get(node.id) if above else None
            if row is not None:  # it is written before the record: a worker may be killed in between
                above, node.name = row.parent, row.name
            parent = self._parent(above)
            node.fd, node.unlinked = record.fd, parent is None
            if parent is not None:
                node.parent = parent
                self._remember(node)
            self._live[node.id] = node
            self._contents[node.id] = _Content(node, slot, record.name, record.content)
            found.append((node, self._heap.get(record.content), parent is not None or above == 0))
        return found

    def _parent(self, number: int) -> Node | None:
        try:
            return self.get(number) if number else None
        except OSError:
            return None


def row_of(node: Node) -> Row:
    assert node.parent is not None
    more = _more(node) if node.target or node.xattrs else b""
    kept = int(bool(node.tag) and node.kept_tag == node.tag)
    return Row(
        node.id, node.parent.id, node.name, node.mode, node.uid, node.gid, node.size, node.atime, node.mtime, node.ctime,
        node.modified_at, node.checked_at, node.listed_at, node.tag, more, kept,
    )  # fmt: skip


def row_attributes(row: Row) -> Attributes:
    """The same as those of its node; for rows without `more`."""
    folder = stat.S_ISDIR(row.mode)
    size = 4096 if folder else row.size
    return Attributes(
        row.id, size, (size + 511) // 512, row.atime, row.mtime, row.ctime, row.mode, 2 if folder else 1, row.uid, row.gid
    )  # fmt: skip


def _more(node: Node) -> bytes:
    xattrs = {name: base64.b64encode(value).decode() for name, value in node.xattrs.items()}
    return json.dumps([base64.b64encode(node.target).decode(), xattrs]).encode()


def _read_more(text: bytes) -> tuple[bytes, dict[str, bytes]]:
    target, xattrs = json.loads(text)
    return base64.b64decode(target), {name: base64.b64decode(value) for name, value in xattrs.items()}


def staged_record(node: Node) -> bytes:
    """What a later worker needs of a file that may be written to."""
    assert node.staged is not None
    try:
        metadata = node.metadata()
    except OSError:  # more than an object can carry: whoever saves it gets the error
        metadata = {}
    found = {
        "staged": node.staged.name, "clean": node.clean_as, "tag": node.tag, "modified_at": node.modified_at,
        "metadata": metadata, "ctime": node.ctime, "pending": node.pending, "key": node.key(),
        "kept": node.kept.name if node.kept is not None else "",
    }  # fmt: skip
    return json.dumps(found).encode()


def name_record(node: Node) -> bytes:
    """Name and attributes of a node with content, for a later worker."""
    above = 0 if node.unlinked or node.parent is None else node.parent.id
    # What has more attributes than fit in here is asked for again.
    checked_at = 0.0 if node.xattrs or node.target else node.checked_at
    tag = node.tag.encode()
    return _NAME.pack(
        above, node.mode, node.uid, node.gid, node.size, node.atime, node.mtime, node.ctime, node.modified_at, checked_at, len(tag)
    ) + tag + node.name.encode()  # fmt: skip


def read_record(number: int, root: Node, text: bytes) -> tuple[int, Node]:
    """The number of the folder above, and the node as it was known."""
    above, mode, uid, gid, size, atime, mtime, ctime, modified_at, checked_at, length = _NAME.unpack_from(text)
    node = Node(number, root, text[_NAME.size + length :].decode(), mode)
    node.uid, node.gid, node.size = uid, gid, size
    node.atime, node.mtime, node.ctime = atime, mtime, ctime
    node.modified_at, node.checked_at = modified_at, checked_at
    node.tag = text[_NAME.size :][:length].decode()
    return above, node


def _number(words: Mapping[str, str], name: str, default: int, base: int = 10, bits: int = 32) -> int:
    """A number of the metadata, which anybody may have written; the default for one that is none, or out of range."""
    try:
        found = int(words[name], base)
    except (KeyError, ValueError):
        return default
    return found if (0 if bits == 32 else -1 << 63) <= found < 1 << min(bits, 63) else default


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


def bounded(moment: int) -> int:
    """The nearest moment that metadata can hold: the years 1677 to 2262."""
    return max(-(1 << 63) + 1, min(moment, (1 << 63) - 1))


def text_of(name: bytes) -> str:
    """A name as it goes into a key; OSError for one that no store takes."""
    if len(name) > 255:
        raise OSError(errno.ENAMETOOLONG, "name of more than 255 bytes")
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise OSError(errno.EILSEQ, "a store takes names in UTF-8 only") from None
