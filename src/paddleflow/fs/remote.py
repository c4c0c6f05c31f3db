"""A store as a tree: names and attributes from `meta`, content through `blocks` and `reader`, changes through `writer`.

What the store cannot express is refused (hard links, FIFOs, device nodes, attributes where it keeps none: ENOTSUP), also of a
file that is sent later; nothing is lost silently. A file is uploaded whole when it is closed, so others see the old version or the new one; of two writers the last close wins. Renaming
a file is a copy and a removal where the store has no rename; renaming a folder does so for everything in it and is not atomic.
Locks: `Node.uploading` is held while the store is asked to change one file, `Node.lock` guards what is known of it and is
never held by an upload; names are guarded by the kernel, which allows one change at a time in a folder.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

from paddleflow.errors import Conflict, NotFound
from paddleflow.fs import kernel
from paddleflow.fs.blocks import SMALL, BlockFile, DataCache, Fetch
from paddleflow.fs.folders import Folders
from paddleflow.fs.index import Index
from paddleflow.fs.kernel import Attributes
from paddleflow.fs.meta import Defaults, Node, Nodes, bounded, row_attributes, text_of
from paddleflow.fs.options import RemoteOptions
from paddleflow.fs.plain import expressible, keeps_attributes, keeps_none
from paddleflow.fs.posix import without_suid
from paddleflow.fs.reader import FolderReader
from paddleflow.fs.remote_file import RemoteFile
from paddleflow.fs.request_lock import RequestLock
from paddleflow.fs.state import HandleRecord, State
from paddleflow.fs.tree import NOW, Changes, Found, Limits, Listed, OpenFile, Owner
from paddleflow.fs.uploads import Uploads, is_dirty, state_of
from paddleflow.fs.writer import Staging
from paddleflow.objects.store import Entry, Kind, ObjectStore
from paddleflow.objects.wrappers import Figures

ASKED_AT_ONCE = 32  #: attributes of objects that are asked for while a folder is listed
_RENAME_NOREPLACE = 1
_XATTR_CREATE, _XATTR_REPLACE = 1, 2
_HUGE = 1 << 40  #: what is free in a store is not known
_READ = struct.Struct("<Q?")


class RemoteTree:
    """`Tree` over a store."""

    quick = True

    def __init__(
        self,
        store: ObjectStore,
        cache: DataCache,
        staging: Staging,
        defaults: Defaults,
        options: RemoteOptions,
        state: State,
        index: Index,
        request_lock: RequestLock | None = None,
        figures: Figures | None = None,
    ) -> None:
        self._figures = figures or Figures()
        self.immutable = options.immutable
        self.entry_seconds = self.attr_seconds = 86_400.0 if options.immutable else options.ttl
        self._store, self._cache, self._staging = store, cache, staging
        self._defaults, self._options, self._request_lock = defaults, options, request_lock or RequestLock()
        root = Node(kernel.ROOT, None, "", stat.S_IFDIR | defaults.folder_mode)
        again = state.agreed.device >= 0
        root.apply(Entry("", Kind.FOLDER) if again else store.stat(""), defaults)
        root.mtime = root.ctime = root.atime = time.time_ns()
        self._nodes, self._index = Nodes(root, state, index), index
        self._uploads = Uploads(staging, self._nodes, self._close, writeback=options.writeback)
        self._askers = ThreadPoolExecutor(ASKED_AT_ONCE, "attributes")
        self._reader = FolderReader(self._nodes, cache, self._fetcher)
        self._folders = Folders(store, self._nodes, self._askers, self._known, defaults, plain=options.plain)
        if again:
            for node, content, placed in self._nodes.restore(state):
                self._restore_content(node, content, placed)

    # ---- names ----

    def _fresh(self, moment: float) -> bool:
        return moment > 0 and (self.immutable or time.monotonic() - moment < self._options.ttl)

    def lookup(self, parent: int, name: bytes) -> Found:
        return self._count(self._child(self._nodes.get(parent), text_of(name)))

    def _count(self, node: Node) -> Found:
        return Found(self._nodes.count(node), self._attributes(node))

    def _child(self, folder: Node, name: str) -> Node:
        node = self._nodes.child(folder, name)
        if node is not None and (node.is_local or self._fresh(node.checked_at)):
            return node
        if node is None and self._fresh(folder.listed_at):
            raise FileNotFoundError(errno.ENOENT, "not there", name)
        self._request_lock.release()
        try:
            entry = self._store.stat(f"{folder.key()}/{name}" if folder.parent else name)
        except NotFound:
            if node is not None:
                self._nodes.remove(node)
            raise
        return self._known(folder, name, entry)

    def _known(self, folder: Node, name: str, entry: Entry) -> Node:
        """The node of an entry with all attributes, made or brought up to date."""
        if entry.kind is Kind.OTHER:
            raise FileNotFoundError(errno.ENOENT, "neither file nor folder", name)
        node = self._nodes.child(folder, name)
        if node is not None and node.is_folder != (entry.kind is Kind.FOLDER):
            self._nodes.remove(node)
            node = None
        if node is None:
            node = self._nodes.add(folder, name, stat.S_IFREG)
        if not node.is_local:
            with node.lock:
                if not node.handles or node.tag == entry.tag:  # a newer version: those who have it open keep theirs
                    node.apply(entry, self._defaults)
        node.checked_at = time.monotonic()
        self._nodes.rewrite(node)
        return node

    def forget(self, node: int, count: int) -> None:
        self._nodes.forget(node)

    def name_of(self, node: int) -> str:
        return self._nodes.get(node).key()

    def listdir(self, node: int, *, look_up: Callable[[], bool]) -> Iterator[Listed]:
        folder, asked = self._nodes.get(node), look_up()
        if not self._fresh(folder.listed_at) or (asked and self._index.has_unasked(folder.id)):
            self._request_lock.release()
            self._folders.take_in(folder, look_up=asked)
        folder.shown_at = folder.listed_at
        for row in self._index.children(folder.id):
            found: Found | None = None
            if row.checked_at and look_up():
                child = self._nodes.live(row.id)
                if child is None and row.more:
                    child = self._nodes.get(row.id)
                found = Found(row.id, row_attributes(row) if child is None else self._attributes(child))
            yield Listed(row.name.encode(), row.id, row.mode >> 12, found)

    def mkdir(self, parent: int, name: bytes, mode: int, owner: Owner) -> Found:
        folder = self._nodes.get(parent)
        node = self._new(folder, name, stat.S_IFDIR | stat.S_IMODE(mode), owner)
        try:
            self._store.make_folder(node.key(), metadata=node.metadata())
        except BaseException:
            self._nodes.remove(node)
            raise
        node.listed_at = time.monotonic()
        return self._count(node)

    def _new(self, folder: Node, name: bytes, mode: int, owner: Owner) -> Node:
        node = self._nodes.add(folder, text_of(name), mode)
        node.uid, node.gid = owner.uid, folder.gid if folder.mode & stat.S_ISGID else owner.gid
        if folder.mode & stat.S_ISGID and stat.S_ISDIR(mode):
            node.mode |= stat.S_ISGID
        if not self._keeps_attributes(node):  # shown from the start as everybody will see it
            node.mode, node.uid, node.gid = self._defaults.of(mode)
        node.atime = node.mtime = node.ctime = folder.mtime = folder.ctime = time.time_ns()
        self._nodes.rewrite(folder)
        node.checked_at = time.monotonic()
        return node

    def symlink(self, parent: int, name: bytes, target: bytes, owner: Owner) -> Found:
        node = self._new(self._nodes.get(parent), name, stat.S_IFLNK | 0o777, owner)
        node.target = target
        try:
            entry = self._store.write(node.key(), b"", metadata=node.metadata())
        except BaseException:
            self._nodes.remove(node)
            raise
        node.tag, node.modified_at = entry.tag, entry.modified_at
        return self._count(node)

    def mknod(self, parent: int, name: bytes, mode: int, rdev: int, owner: Owner) -> Found:
        if not stat.S_ISREG(mode):
            raise OSError(errno.EOPNOTSUPP, "a store holds files, folders and symbolic links")
        found, file = self.create(parent, name, os.O_WRONLY, mode, owner)
        try:
            file.flush()
        finally:
            file.release()
        return found

    def link(self, node: int, parent: int, name: bytes) -> Found:
        raise OSError(errno.EOPNOTSUPP, "a store has no hard links")

    def readlink(self, node: int) -> bytes:
        return self._known_node(node).target

    def _known_node(self, number: int) -> Node:
        """The node with its attributes: those of one that a worker before this one knew may have to be asked for."""
        node = self._nodes.get(number)
        if node.checked_at > 0 or node.parent is None or node.unlinked or node.is_local or node.handles:
            return node
        return self._child(node.parent, node.name)

    def unlink(self, parent: int, name: bytes) -> None:
        folder = self._nodes.get(parent)
        node = self._child(folder, text_of(name))
        if node.is_folder:
            raise IsADirectoryError(errno.EISDIR, "a folder")
        with node.uploading, node.lock:
            self._keep_for_readers(node)
            self._store.remove(node.key())
            self._nodes.remove(node)
            self._uploads.forget(node)
        folder.mtime = folder.ctime = node.ctime = time.time_ns()
        self._nodes.rewrite(folder)

    def _keep_for_readers(self, node: Node) -> None:
        """Before the object goes or moves: programs that have it open continue with the local file."""
        if node.handles and node.file is not None:
            if not node.file.whole:
                node.file.make_whole()
            self._describe(node)

    def rmdir(self, parent: int, name: bytes) -> None:
        folder = self._nodes.get(parent)
        node = self._child(folder, text_of(name))
        if not node.is_folder:
            raise NotADirectoryError(errno.ENOTDIR, "not a folder")
        if any(each.is_local and each.parent is node and not each.unlinked for each in self._nodes.with_content()):
            raise OSError(errno.ENOTEMPTY, "not empty")
        self._store.remove_folder(node.key())
        self._nodes.remove(node)
        if folder.parent is not None:  # a prefix without a marker ends with its last object: keep the folder above
            self._store.make_folder(folder.key(), metadata=folder.metadata())
        folder.mtime = folder.ctime = time.time_ns()
        self._nodes.rewrite(folder)

    def rename(
        self, parent: int, name: bytes, new_parent: int, new_name: bytes, flags: int, *, repeated: bool = False
    ) -> None:
        if flags & ~_RENAME_NOREPLACE:
            raise OSError(errno.EINVAL, "names cannot be exchanged in a store")
        folder, new_folder, new = self._nodes.get(parent), self._nodes.get(new_parent), text_of(new_name)
        if repeated and self._was_renamed(folder, text_of(name), new_folder, new):
            return
        node = self._child(folder, text_of(name))
        try:
            old: Node | None = self._child(new_folder, new)
        except (FileNotFoundError, NotFound):
            old = None
        if old is node:
            return
        if old is not None and not (repeated and old.is_folder and node.is_folder):
            self._check_replaceable(node, old, flags)
        with node.uploading, old.uploading if old is not None else nullcontext(), node.lock:
            if node.is_folder:
                self._folders.rename(node.key(), f"{new_folder.key()}/{new}" if new_folder.parent else new)
                self._place(node, old, new_folder, new)
            elif node.staged is not None and (node.pending or not node.tag):
                self._rename_unsent(node, old, new_folder, new, repeated)
            else:
                self._rename_stored(node, old, new_folder, new)
        now = time.time_ns()
        folder.mtime = folder.ctime = new_folder.mtime = new_folder.ctime = node.ctime = now
        for each in (folder, new_folder, node):
            self._nodes.rewrite(each)

    def _place(self, node: Node, old: Node | None, folder: Node, name: str) -> None:
        if old is not None:
            self._nodes.remove(old)
        self._nodes.move(node, folder, name)
        self._describe(node)

    def _rename_stored(self, node: Node, old: Node | None, folder: Node, name: str) -> None:
        if old is not None:
            self._uploads.send_now(old)
        key, new_key = node.key(), f"{folder.key()}/{name}" if folder.parent else name
        self._keep_for_readers(node)
        entry = self._store.rename(key, new_key)
        self._cache.rename(key, node.tag, new_key, entry.tag)
        node.tag, node.modified_at = entry.tag, entry.modified_at
        self._place(node, old, folder, name)
        if old is not None:
            self._uploads.forget(old)

    def _rename_unsent(self, node: Node, old: Node | None, folder: Node, name: str, repeated: bool) -> None:
        """What the store does not have yet goes there under its new name; until then that has the old content there."""
        if node.tag or repeated:  # first: a worker that repeats this would take an earlier version for the file
            node.tag = ""
            self._describe(node)
            self._store.remove(node.key())
        node.tag = old.tag if old is not None else ""
        self._place(node, old, folder, name)
        self._commit_place(node, old)

    def _commit_place(self, node: Node, old: Node | None) -> None:
        if node.pending and not self._uploads.commit_name(node, old):
            self._uploads.upload(node)
            self._uploads.forget(node)
        if old is not None:
            self._uploads.forget(old)

    def _was_renamed(self, folder: Node, name: str, new_folder: Node, new: str) -> bool:
        """Whether a worker that is gone did it in the store; then the node gets its new name here, too."""
        node = self._nodes.child(folder, name)
        if node is None:
            node = self._nodes.child(new_folder, new)
            if node is not None:  # perhaps it was killed before the note of the new name
                with node.uploading, node.lock:
                    self._commit_place(node, None)
            return False
        if node.is_local:
            return False
        try:
            self._store.stat(node.key())
            return False
        except NotFound:
            self._store.stat(f"{new_folder.key()}/{new}" if new_folder.parent else new)
        old = self._nodes.child(new_folder, new)
        if old is not None:
            self._nodes.remove(old)
        node.checked_at = 0.0
        self._nodes.move(node, new_folder, new)
        return True

    def _check_replaceable(self, node: Node, old: Node, flags: int) -> None:
        if flags & _RENAME_NOREPLACE:
            raise FileExistsError(errno.EEXIST, "exists")
        if node.is_folder and not old.is_folder:
            raise NotADirectoryError(errno.ENOTDIR, "not a folder")
        if old.is_folder and not node.is_folder:
            raise IsADirectoryError(errno.EISDIR, "a folder")
        if old.is_folder:
            if any(True for _ in self.listdir(old.id, look_up=lambda: False)):
                raise OSError(errno.ENOTEMPTY, "not empty")
        else:
            self._keep_for_readers(old)

    # ---- attributes ----

    def _attributes(self, node: Node) -> Attributes:
        if node.staged is not None:
            with self._request_lock.guard(node.lock):  # which is held while a disk syncs
                if node.staged is not None:
                    found = os.fstat(node.fd)
                    node.size, node.mtime = found.st_size, found.st_mtime_ns
                    node.ctime = max(node.ctime, found.st_mtime_ns if found.st_mtime_ns <= time.time_ns() else 0)
        return node.attributes()

    def getattr(self, node: int) -> Attributes:
        known = self._nodes.get(node)
        sure = known.unlinked or known.is_local or known.handles or self._fresh(known.checked_at)
        return self._attributes(known if known.parent is None or sure else self._child(known.parent, known.name))

    def setattr(self, node: int, changes: Changes, file: OpenFile | None) -> Attributes:
        known = self._known_node(node)
        if not self._keeps_attributes(known):
            changes = expressible(changes, self._attributes(known), unsent=known.is_local)
        if changes.size is not None:
            self._truncate(known, changes.size)
        self._change(known, changes)
        self._nodes.rewrite(known)
        self.describe_staged(known)
        if changes != Changes(size=changes.size, kill_suid=changes.kill_suid):
            self._save_attributes(known)
        return self._attributes(known)

    def _keeps_attributes(self, node: Node) -> bool:
        return node.unlinked or keeps_attributes(self._store, node.key())

    def _change(self, node: Node, changes: Changes) -> None:
        now = time.time_ns()
        with node.lock:
            if changes.mode is not None:
                node.mode = stat.S_IFMT(node.mode) | stat.S_IMODE(changes.mode)
            elif (changes.uid is not None or changes.gid is not None or changes.kill_suid) and stat.S_ISREG(node.mode):
                node.mode = stat.S_IFMT(node.mode) | without_suid(node.mode)
            node.uid = node.uid if changes.uid is None else changes.uid
            node.gid = node.gid if changes.gid is None else changes.gid
            if changes.atime is not None:
                node.atime = now if changes.atime == NOW else bounded(changes.atime)
            if changes.mtime is not None:
                node.mtime = now if changes.mtime == NOW else bounded(changes.mtime)
                if node.staged is not None:
                    os.utime(node.fd, ns=(node.atime, node.mtime))
            node.ctime = now

    def _truncate(self, node: Node, size: int) -> None:
        if not stat.S_ISREG(node.mode):
            raise OSError(errno.EISDIR if node.is_folder else errno.EINVAL, "not a file")
        file = self.open(node.id, os.O_WRONLY | (os.O_TRUNC if size == 0 else 0))
        try:
            os.ftruncate(node.fd, size)
            os.utime(node.fd)
            if node.writers == 1:
                file.flush()
        finally:
            file.release()

    def _save_attributes(self, node: Node) -> None:
        """Attributes of what is being written travel with its content; others at once."""
        with node.uploading, node.lock:
            if node.unlinked:
                return
            if node.is_folder:
                if node.parent is not None:
                    self._store.make_folder(node.key(), metadata=node.metadata())
            elif node.pending or (node.staged is not None and is_dirty(node)):
                if not node.writers:
                    self._attributes(node)
                    self._uploads.save(node)
            elif node.tag:
                key = node.key()
                entry = self._store.set_metadata(key, node.metadata())
                if node.staged is not None:
                    node.clean_as = state_of(node.fd)
                else:
                    self._cache.rename(key, node.tag, key, entry.tag)
                node.tag, node.modified_at = entry.tag, entry.modified_at
                self._nodes.rewrite(node)
                self.describe_staged(node)

    def getxattr(self, node: int, name: bytes) -> bytes:
        try:
            return self._known_node(node).xattrs[text_of(name)]
        except KeyError:
            raise OSError(errno.ENODATA, "no such attribute") from None

    def listxattr(self, node: int) -> list[bytes]:
        return [name.encode() for name in self._known_node(node).xattrs]

    def setxattr(self, node: int, name: bytes, value: bytes, flags: int) -> None:
        known, word = self._known_node(node), text_of(name)
        if word.startswith("system."):
            raise OSError(errno.EOPNOTSUPP, "no access lists")
        if not self._keeps_attributes(known):
            raise keeps_none()
        if flags & _XATTR_CREATE and word in known.xattrs:
            raise FileExistsError(errno.EEXIST, "exists")
        if flags & _XATTR_REPLACE and word not in known.xattrs:
            raise OSError(errno.ENODATA, "no such attribute")
        before = dict(known.xattrs)
        known.xattrs[word] = value
        try:
            known.metadata()
        except OSError:
            known.xattrs = before
            raise
        self.describe_staged(known)
        self._save_attributes(known)

    def removexattr(self, node: int, name: bytes) -> None:
        known = self._known_node(node)
        if known.xattrs.pop(text_of(name), None) is None:
            raise OSError(errno.ENODATA, "no such attribute")
        self.describe_staged(known)
        self._save_attributes(known)

    # ---- content ----

    def open(self, node: int, flags: int, *, kill_suid: bool = False) -> RemoteFile:
        known = self._known_node(node)
        writable = flags & os.O_ACCMODE != os.O_RDONLY
        settled = known.is_local or known.handles or known.unlinked
        if self._options.strict and not settled and known.parent is not None:
            known = self._ask_again(known, known.parent)
        if writable:
            self._request_lock.release()
        with self._request_lock.guard(known.lock):
            fresh = flags & os.O_TRUNC and not known.handles and known.staged is None and writable
            if flags & os.O_TRUNC and writable and known.pending:
                self._uploads.begin_again(known)
            if fresh:
                self._stage_empty(known)
            elif known.fd < 0 and known.unlinked:
                raise OSError(errno.ESTALE, "the object is gone")
            elif known.fd < 0:
                known.file = self._open_content(known)
                known.fd = known.file.fd
            try:
                if writable and known.staged is None:
                    self._stage(known)
                if flags & os.O_TRUNC and writable:
                    os.ftruncate(known.fd, 0)
                    os.utime(known.fd)
                    if kill_suid:
                        known.mode = stat.S_IFMT(known.mode) | without_suid(known.mode)
            except BaseException:
                if not known.handles:
                    self._close(known)
                raise
            known.handles += 1
            known.writers += writable
            if writable:
                self._describe(known)
            elif known.size <= SMALL and known.parent is not None and not known.is_local:
                self._reader.opened(known.parent.id, known.id)
            return RemoteFile(self, known, writable=writable)

    def _open_content(self, node: Node) -> BlockFile:
        """The local file of a node's version; of the one that the store has now if that one is gone."""
        try:
            return self._cache.open(node.key(), node.tag, node.size, self._fetcher(node.key(), node.tag))
        except (Conflict, NotFound):
            if node.parent is None:
                raise
            self._ask_again(node, node.parent)
            return self._cache.open(node.key(), node.tag, node.size, self._fetcher(node.key(), node.tag))

    def _ask_again(self, node: Node, parent: Node) -> Node:
        """Ask the store whether it has another version now. The kernel, which knows the size of the old one, is told at open."""
        before, node.checked_at = node.tag, 0.0
        found = self._child(parent, node.name)
        if found.tag != before:
            found.kept_tag = before
        return found

    def _fetcher(self, key: str, tag: str) -> Fetch:
        return lambda offset, size: self._store.read(key, offset=offset, size=size, tag=tag)

    # ---- what a later worker continues with ----

    def _describe(self, node: Node) -> None:
        """Write down what is open of a node, before the kernel is told of it."""
        self._uploads.describe(node)
        if node.staged is None and node.file is not None:
            self._nodes.describe(node, b"r" + _READ.pack(node.file.size, node.file.whole) + node.tag.encode())

    def describe_staged(self, node: Node) -> None:
        self._uploads.describe(node)

    def _restore_content(self, node: Node, content: bytes, placed: bool) -> None:
        if content[:1] == b"r":
            size, whole = _READ.unpack_from(content, 1)
            node.size, node.tag = size, content[1 + _READ.size :].decode()
            node.file = self._cache.reopen(
                node.key(), node.tag, size, self._fetcher(node.key(), node.tag), node.fd if whole else -1, node.fd
            )
            node.fd = node.file.fd
            self._describe(node)
            return
        found = json.loads(content[1:])
        size = os.fstat(node.fd).st_size
        if not placed:
            self._find_place(node, found["key"])
        node.apply(
            Entry(found["key"], Kind.FILE, size, found["modified_at"], found["tag"], found["metadata"]), self._defaults
        )
        node.staged, node.ctime = self._staging.path(found["staged"]), found["ctime"]
        node.clean_as = found["clean"] and (found["clean"][0], found["clean"][1])
        node.checked_at = time.monotonic()
        if found.get("kept"):
            self._uploads.restore(node, self._staging.path(found["kept"]))
        node.pending = found["pending"]  # goes on when it is known who has the file open: `settle`

    def _find_place(self, node: Node, key: str) -> None:
        """A file on its way to the store, whose folder is not known any more."""
        folder = self._nodes.root
        for name in key.split("/")[:-1]:
            folder = self._nodes.child(folder, name) or self._nodes.add(folder, name, stat.S_IFDIR)
            self._nodes.rewrite(folder)
        if self._nodes.child(folder, node.name) is None:
            node.unlinked = False
            self._nodes.move(node, folder, node.name)

    def reopen(self, record: HandleRecord) -> RemoteFile:
        node = self._nodes.get(record.node)
        if node.fd < 0 and not node.is_local:  # it was only read: its version lies in the cache, or in the store
            node.file = self._cache.open(
                node.key(), node.tag, node.size, self._fetcher(node.key(), node.tag), at_once=False
            )
            node.fd = node.file.fd
        writable = record.flags & os.O_ACCMODE != os.O_RDONLY or node.staged is not None
        node.handles += 1
        node.writers += writable
        return RemoteFile(self, node, writable=writable)

    def settle(self) -> None:
        named = set()
        for node in self._nodes.with_content():
            if not node.handles and not node.pending:
                with node.lock:
                    self._close(node)
            if node.staged is not None:
                named.add(node.staged)
            if node.kept is not None:
                named.add(node.kept)
        self._staging.remove_others(named)
        for node in self._nodes.with_content():
            if node.pending:
                self._uploads.send_later(node)

    def _stage(self, node: Node) -> None:
        """Move the whole content to where it may be written to. It is the same file, so readers see writes."""
        assert node.file is not None
        node.file.make_whole()
        path = self._staging.new_path(near=node.file.path)
        self._cache.take(node.file, path)
        os.utime(node.fd, ns=(node.atime, node.mtime))
        node.staged, node.file = path, None
        node.clean_as = state_of(node.fd)
        self._describe(node)

    def _stage_empty(self, node: Node) -> None:
        path = self._staging.new_path()
        node.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        node.staged, node.file, node.clean_as = path, None, None

    def create(self, parent: int, name: bytes, flags: int, mode: int, owner: Owner) -> tuple[Found, RemoteFile]:
        node = self._new(self._nodes.get(parent), name, stat.S_IFREG | stat.S_IMODE(mode), owner)
        with node.lock:
            try:
                self._stage_empty(node)
            except BaseException:
                self._nodes.remove(node)
                raise
            # Whatever the flags say: also a file that is only made and never written to must arrive in the store.
            node.handles = node.writers = 1
            self._describe(node)
            return self._count(node), RemoteFile(self, node, writable=True)

    def save(self, node: Node) -> None:
        """Bring what was written to where it is durable."""
        with node.lock:
            if node.unlinked or node.staged is None or not is_dirty(node):
                return
            self._attributes(node)
        self._uploads.save(node)

    def free_disk(self, wanted: int) -> None:
        """Give up cached content, so that what is written finds a place."""
        self._cache.evict(wanted)

    def let_go(self, node: Node, *, writable: bool) -> None:
        if writable or node.is_local:
            self._request_lock.release()
        with self._request_lock.guard(node.lock):
            node.handles -= 1
            node.writers -= writable
            if not node.handles:
                self._uploads.released(node)

    def _close(self, node: Node) -> None:
        """Nobody has it open, and nothing is on its way: the content goes (back) into the cache."""
        refused = node.staged is not None and (node.unlinked or not node.tag or is_dirty(node))
        if refused:
            node.checked_at = 0.0
        elif node.staged is not None:
            node.size = os.fstat(node.fd).st_size
        known = node.saved is not None and node.saved.kept and node.saved.tag == node.tag
        if node.staged is not None or not known:
            self._nodes.rewrite(node)  # a later worker knows the version before it loses sight of the content
        self._nodes.describe(node, b"")
        if node.file is not None:
            self._cache.close_file(node.file)
        elif node.staged is not None:
            if refused:
                node.staged.unlink(missing_ok=True)  # by the store, and its program was told so
                if not node.tag and not node.unlinked:
                    self._nodes.remove(node)
            else:
                self._cache.put(node.staged, node.key(), node.tag, node.fd)
            os.close(node.fd)
        node.file, node.staged, node.fd, node.clean_as = None, None, -1, None

    # ---- the rest ----

    def kept_listing(self, node: int) -> bool | None:
        folder = self._nodes.get(node)
        return self._fresh(folder.listed_at) and folder.shown_at == folder.listed_at

    def syncdir(self, node: int) -> None:
        self._nodes.get(node)  # names are in the store already

    def statfs(self) -> Limits:
        return Limits(_HUGE, _HUGE, _HUGE, _HUGE, _HUGE, 4096, 255)

    def stats(self) -> dict[str, object]:
        return {
            "nodes": len(self._nodes),
            "attributes asked": self._folders.asked,
            **self._cache.stats(),
            **self._staging.figures,
            "store": self._figures.as_dict(),
        }

    def close(self) -> None:
        self._staging.drain()
        self._askers.shutdown(wait=True, cancel_futures=True)
        self._reader.close()
        self._cache.close()
        self._index.close()
        self._store.close()
