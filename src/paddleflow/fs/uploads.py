"""Nodes on their way to the store: when a file that was written is acknowledged, and which content of it is uploaded.

With write-back the acknowledged version must outlast whatever programs do to the file before it has arrived. What is changed in place
is uploaded when that is acknowledged, too; a file that is truncated and written again gets another staged file, and the
acknowledged one (`Node.kept`) stays as it is. So nobody ever sees half of a new version, neither in the store nor after a crash.

Called by `remote`, with the locks that `Node` describes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from paddleflow.fs.journal import MOST_CONTENT
from paddleflow.fs.meta import Node, Nodes, staged_record
from paddleflow.fs.writer import TRIED_AGAIN, Changed, Commit, Staging, line_of


def state_of(fd: int) -> tuple[int, int]:
    """Size and time of a staged file: what is compared to know whether it was written to."""
    found = os.fstat(fd)
    return found.st_size, found.st_mtime_ns


def is_dirty(node: Node) -> bool:
    return node.clean_as is None or node.clean_as != state_of(node.fd)


class Uploads:
    """`close` is what to do with a node that nobody has open, once it has arrived."""

    def __init__(self, staging: Staging, nodes: Nodes, close: Callable[[Node], None], *, writeback: bool) -> None:
        self._staging, self._nodes, self._close, self._writeback = staging, nodes, close, writeback

    def describe(self, node: Node) -> None:
        if node.staged is not None:
            self._nodes.describe(node, b"s" + staged_record(node))

    def save(self, node: Node) -> None:
        """Bring what was written to where it is durable: the store, or with write-back this machine's disk."""
        with node.lock:
            if node.unlinked or node.staged is None:
                return
            if self._writeback and self.commit(node):
                return
        self.upload(node)

    def upload(self, node: Node) -> None:
        """Bring the content as it is now into the store. `lock` is free meanwhile, so that nobody else has to wait."""
        with node.uploading:
            with node.lock:
                if node.unlinked or node.staged is None:
                    return
                before, fd = state_of(node.fd), os.dup(node.fd)
                commit = Commit(node.key(), node.metadata(), node.tag, line_of(node.staged))
            try:
                entry = self._staging.upload(fd, commit)
            finally:
                os.close(fd)
            with node.lock:
                node.tag, node.modified_at, node.checked_at = entry.tag, entry.modified_at, time.monotonic()
                node.clean_as = before
                self._drop_kept(node)
                self.describe(node)

    def _drop_kept(self, node: Node) -> None:
        """What is staged has replaced it."""
        if node.kept is not None:
            self._staging.drop(node.kept)
            node.kept = None

    def forget(self, node: Node) -> None:
        """Its name is gone."""
        self._drop_kept(node)
        if node.staged is not None:
            self._staging.forget(node.staged)

    def commit(self, node: Node, over: Node | None = None) -> bool:
        """Acknowledge the content as it is now, in place of another file if so; with the node's lock held.

        False: this machine's disk takes no note, so the file must go to the store now.
        """
        assert node.staged is not None
        if not self._staging.commit(node.staged, node.fd, self._commit_of(node, over)):
            return False
        node.clean_as, node.commits = state_of(node.fd), node.commits + 1  # another close has nothing more to commit
        self._drop_kept(node)
        self._send(node)
        return True

    def commit_name(self, node: Node, over: Node | None) -> bool:
        """The same for a new name of what was acknowledged; its content stays."""
        if node.kept is None and not is_dirty(node):
            return self.commit(node, over)
        path = node.kept or node.staged
        assert path is not None
        if not self._staging.commit_name(path, self._commit_of(node, over)):
            return False
        node.commits += 1
        self._send(node)
        return True

    @staticmethod
    def _commit_of(node: Node, over: Node | None) -> Commit:
        instead_of = line_of(over.staged) if over is not None and over.staged is not None else ""
        return Commit(node.key(), node.metadata(), node.tag, again=node.pending, over=instead_of)

    def _send(self, node: Node) -> None:
        node.pending = True
        self.send_later(node)
        self.describe(node)

    def send_later(self, node: Node) -> None:
        if not node.sending:
            node.sending = True
            self._staging.upload_later(lambda: self._send_committed(node), node.key())

    def _send_committed(self, node: Node) -> None:
        """In the background; what is not tried again must not keep a later close from trying."""
        try:
            self._send_until_arrived(node)
        except TRIED_AGAIN:
            raise
        except BaseException:
            node.sending = False
            raise

    def _send_until_arrived(self, node: Node) -> None:
        """Until what was acknowledged last is in the store."""
        with node.uploading:
            while True:
                with node.lock:
                    commits = node.commits
                    if node.unlinked or node.staged is None:
                        self.forget(node)  # whoever took its name may have been killed before
                        node.pending = node.sending = False
                        break
                try:
                    self._send_once(node)
                except Changed:
                    if not self._catch_up(node, commits):
                        return
                    continue
                with node.lock:
                    if commits == node.commits:  # nothing was committed meanwhile
                        self._arrived(node)
                        break
            with node.lock:
                if not node.handles and not node.pending:
                    self._close(node)

    def _catch_up(self, node: Node, commits: int) -> bool:
        """After a change that is not acknowledged yet. False: its commit, or the last close, still runs."""
        with node.lock:
            if commits != node.commits or node.kept is not None:
                return True
            if node.handles:
                node.sending = False
                return False
            if not self.commit(node):  # written after the last close (mmap), and the disk takes no note
                node.clean_as = state_of(node.fd)
            return True

    def _arrived(self, node: Node) -> None:
        if node.kept is not None:
            self._drop_kept(node)
        elif node.staged is not None:
            self._staging.forget(node.staged)
        node.pending = node.sending = False
        self.describe(node)

    def _send_once(self, node: Node) -> None:
        with node.lock:
            assert node.staged is not None
            path = node.kept or node.staged
            fd = os.dup(node.fd) if node.kept is None else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            wanted = node.clean_as if node.kept is None else state_of(fd)
            commit = Commit(node.key(), node.metadata(), node.tag, line_of(path))
        try:
            entry = self._staging.upload(fd, commit, lambda: state_of(fd) == wanted)
        finally:
            os.close(fd)
        with node.lock:
            node.tag, node.modified_at, node.checked_at = entry.tag, entry.modified_at, time.monotonic()
            self.describe(node)

    def released(self, node: Node) -> None:
        """Nobody has it open any more; with the node's lock held."""
        if not node.pending:
            self._close(node)
            return
        if node.kept is not None:  # its last close failed, or it was written to after that (mmap)
            self.commit(node)
        self.send_later(node)

    def send_now(self, node: Node) -> None:
        """Before something else gets its name in the store. With `uploading` held."""
        while node.pending and not node.unlinked:
            commits = node.commits
            try:
                self._send_once(node)
            except Changed:
                return
            with node.lock:
                if commits == node.commits:
                    self._arrived(node)

    def begin_again(self, node: Node) -> None:
        """Before a file is truncated that was acknowledged and is not in the store yet: it stays as it is, and its node gets another."""
        assert node.staged is not None
        if node.kept is not None or (node.handles and node.clean_as is not None and node.clean_as[0] <= MOST_CONTENT):
            return  # the journal has the content of small ones
        kept, path = node.staged, self._staging.new_path(after=node.staged)
        node.staged, node.kept = path, kept
        self.describe(node)  # first: whoever finds only a part of the following takes it back
        if node.handles:
            self._staging.copy_aside(kept, path)
        else:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            os.dup2(fd, node.fd, inheritable=False)
            os.close(fd)
            node.clean_as = None

    @staticmethod
    def restore(node: Node, kept: Path) -> None:
        """After a worker that was killed: a second staged file only if the first one is another file."""
        assert node.staged is not None
        mine = os.fstat(node.fd)
        if os.path.samestat(mine, kept.stat()):
            node.staged.unlink(missing_ok=True)
            node.staged = kept
        else:
            node.kept = kept
