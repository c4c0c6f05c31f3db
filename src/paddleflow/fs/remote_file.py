"""An open file of a store: where its bytes are read and written. Made by `remote`, called by `vfs`."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

from paddleflow.errors import NotFound
from paddleflow.fs.meta import Node
from paddleflow.fs.posix import without_suid
from paddleflow.fs.reader import Reader

if TYPE_CHECKING:
    from paddleflow.fs.remote import RemoteTree


class RemoteFile:
    """An open file of a store."""

    def __init__(self, tree: RemoteTree, node: Node, *, writable: bool) -> None:
        self._tree, self.node, self._writable = tree, node, writable
        self._reader = Reader(node.file) if node.file is not None and not node.file.whole else None
        self.keep_cache = bool(node.tag) and node.kept_tag == node.tag and not node.is_local
        self.changed = bool(node.kept_tag) and node.kept_tag != node.tag
        node.kept_tag = "" if node.is_local else node.tag
        self.was_cached = node.file is None or (node.file.whole and not node.file.fetched_at_open)
        if node.file is not None:
            node.file.fetched_at_open = False

    @property
    def fd(self) -> int:
        return -1  # it is the node's

    def backing(self) -> int | None:
        node = self.node
        if node.mode & (stat.S_ISUID | stat.S_ISGID):
            return None  # a write must come to us, for it clears these bits
        return node.fd if node.staged is not None or (node.file is not None and node.file.whole) else None

    def read(self, size: int, offset: int) -> bytes | bytearray:
        node = self.node
        if node.staged is not None or node.file is None:
            return os.pread(node.fd, size, offset)
        try:
            return (self._reader or node.file).read(size, offset)
        except NotFound as error:
            raise OSError(errno.ESTALE, "the object is gone") from error  # ENOENT is no answer to a read

    def write(self, data: memoryview, offset: int, *, kill_suid: bool = False) -> int:
        if kill_suid:
            self.node.mode = stat.S_IFMT(self.node.mode) | without_suid(self.node.mode)
            self._tree.describe_staged(self.node)
        try:
            return os.pwrite(self.node.fd, data, offset)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            self._tree.free_disk(len(data))
            return os.pwrite(self.node.fd, data, offset)

    def flush(self) -> None:
        if self._writable:
            self._tree.save(self.node)

    def fsync(self, *, data_only: bool) -> None:
        if self._writable:
            self._tree.save(self.node)

    def allocate(self, mode: int, offset: int, length: int) -> None:
        if mode:
            raise OSError(errno.EOPNOTSUPP, "only plain allocation")
        os.posix_fallocate(self.node.fd, offset, length)

    def seek(self, offset: int, whence: int) -> int:
        file = self.node.file
        if file is None or file.whole:
            return os.lseek(self.node.fd, offset, whence)
        if not 0 <= offset < file.size:
            raise OSError(errno.ENXIO, "beyond the end")
        return offset if whence == os.SEEK_DATA else file.size  # objects have no holes

    def release(self) -> None:
        self._tree.let_go(self.node, writable=self._writable)
