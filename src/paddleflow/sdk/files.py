"""The files of a storage, through the server: nothing is mounted, and no key of the store is needed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import BinaryIO

from paddleflow.errors import Unavailable
from paddleflow.sdk.area import Area
from paddleflow.sdk.records import Record, items, record, table, wire
from paddleflow.sdk.transport import segment

PART = 8 * 2**20  #: bytes that are sent at once


@record
class File(Record):
    """A file or folder of a storage."""

    path: str = wire()
    kind: str = wire()  #: file, folder or other
    size: int = wire(0)
    modified_at: float = wire(0.0)
    tag: str = wire()  #: changes whenever the content changes


class Files(Area):
    """Files by the name of their storage and the path in it. `user` (root only) acts in another user's name."""

    def list(self, storage: str, path: str = "", *, user: str | None = None) -> Iterator[File]:
        """What lies in a folder, by name, page after page."""
        marker = ""
        while True:
            query = {"path": path, "username": user, "marker": marker or None}
            answer = table(self._transport.call("GET", f"/fs/{segment(storage)}/files", query=query))
            yield from (File.of(each) for each in items(answer.get("files")))
            marker = str(answer.get("nextMarker") or "")
            if not marker:
                return

    def stat(self, storage: str, path: str = "", *, user: str | None = None) -> File:
        query = {"path": path, "username": user}
        return File.of(self._transport.call("GET", f"/fs/{segment(storage)}/stat", query=query))

    def make_folder(self, storage: str, path: str, *, user: str | None = None) -> None:
        query = {"path": path, "username": user}
        self._transport.call("POST", f"/fs/{segment(storage)}/folders", query=query, settled=Unavailable)

    def remove(self, storage: str, path: str, *, recursive: bool = False, user: str | None = None) -> None:
        query = {"path": path, "username": user, "recursive": "true" if recursive else None}
        self._transport.call("DELETE", f"/fs/{segment(storage)}/files", query=query)

    def read(
        self, storage: str, path: str, *, offset: int = 0, size: int = -1, tag: str = "", user: str | None = None
    ) -> bytes:
        """A range of a file, of one version if a tag is given."""
        query = {"path": path, "username": user, "offset": offset, "size": size, "tag": tag or None}
        with self._transport.stream(f"/fs/{segment(storage)}/content", query=query) as stream:
            wanted = int(stream.header("content-length") or 0)
            content = b"".join(stream.chunks(lambda: self._transport.timeout))
        if len(content) != wanted:
            raise Unavailable(f"{path} of {storage} ended after {len(content)} of {wanted} bytes")
        return content

    def write(
        self, storage: str, path: str, content: bytes | BinaryIO, *, if_absent: bool = False, user: str | None = None
    ) -> File:
        """Write a file, whole: at once if it is small, by parts otherwise. Each part carries its checksum."""
        first = content if isinstance(content, bytes) else _read_full(content)
        if len(first) < PART:
            query = self._sent(path, first, user) | {"ifAbsent": "true" if if_absent else None}
            return File.of(self._transport.call("PUT", f"/fs/{segment(storage)}/content", query=query, body=first))
        upload = self.start_upload(storage, path, user=user)
        pieces = _cut(content) if isinstance(content, bytes) else _pieces(first, content)
        for number, piece in enumerate(pieces, 1):
            self.write_part(storage, upload, number, piece, user=user)
        return self.finish_upload(storage, upload, path, user=user)

    def start_upload(self, storage: str, path: str, *, user: str | None = None) -> str:
        """The id of an upload by parts, which may go on after a break."""
        query = {"path": path, "username": user}
        answer = table(self._transport.call("POST", f"/fs/{segment(storage)}/uploads", query=query))
        return str(answer["uploadID"])

    def write_part(self, storage: str, upload: str, number: int, content: bytes, *, user: str | None = None) -> None:
        query = self._sent("", content, user) | {"part": number}
        path = f"/fs/{segment(storage)}/uploads/{segment(upload)}"
        self._transport.call("PUT", path, query=query, body=content)

    def parts(self, storage: str, upload: str, *, user: str | None = None) -> dict[int, int]:
        """Which parts have arrived, with their sizes."""
        path = f"/fs/{segment(storage)}/uploads/{segment(upload)}"
        answer = table(self._transport.call("GET", path, query={"username": user}))
        return {int(str(each["part"])): int(str(each["size"])) for each in map(table, items(answer.get("parts")))}

    def finish_upload(self, storage: str, upload: str, path: str, *, user: str | None = None) -> File:
        where = f"/fs/{segment(storage)}/uploads/{segment(upload)}"
        return File.of(self._transport.call("POST", where, query={"path": path, "username": user}))

    @staticmethod
    def _sent(path: str, content: bytes, user: str | None) -> dict[str, str | int | None]:
        return {"path": path or None, "username": user, "sha256": hashlib.sha256(content).hexdigest()}


def _read_full(content: BinaryIO) -> bytes:
    """The next part of a stream; shorter only at its end."""
    pieces, size = [], 0
    while size < PART and (piece := content.read(PART - size)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def _cut(content: bytes) -> Iterator[bytes]:
    return (content[at : at + PART] for at in range(0, len(content), PART))


def _pieces(first: bytes, rest: BinaryIO) -> Iterator[bytes]:
    while first:
        yield first
        first = _read_full(rest)
