"""A folder of a store as a tar file, without holding it in memory. Blocks on the store; called by `api.artifacts` in a `FilePool`.

Only regular files go into it, each read through the store, which resolves every name again and refuses what leads out: a name
that is swapped for a link meanwhile gains nothing. A link to a file of the same store is that file; links to folders are left out.
"""

from __future__ import annotations

import tarfile
from collections.abc import Generator, Iterator
from itertools import islice

from paddleflow.errors import TooLarge
from paddleflow.objects.store import Entry, Kind, ObjectStore

PIECE = 2**20
MOST_FILES = 100_000  #: of an archive; their names are sorted in memory
_BLOCK = 512


def tar(store: ObjectStore, folder: str, most: int = MOST_FILES) -> Generator[bytes, None, None]:
    """All files below a folder. One that changes meanwhile is cut or filled to the size it had; one that cannot be read any
    more ends the stream with an error. The store is closed behind it."""
    try:
        files = (entry for entry in store.list_entries(folder, recursive=True) if entry.kind is Kind.FILE)
        entries = list(islice(files, most + 1))
        if len(entries) > most:
            raise TooLarge(
                f"more than {most:,} files lie in {folder!r}", hint="download the folders inside it one by one"
            )
        for entry in sorted(entries, key=lambda entry: entry.key):
            yield _header(entry, folder)
            yield from _padded(store, entry)
        yield bytes(2 * _BLOCK)
    finally:
        store.close()


def _header(entry: Entry, folder: str) -> bytes:
    header = tarfile.TarInfo(entry.key.removeprefix(f"{folder}/") if folder else entry.key)
    header.mode, header.mtime, header.size = 0o644, int(entry.modified_at), entry.size
    return header.tobuf(tarfile.PAX_FORMAT)


def _padded(store: ObjectStore, entry: Entry) -> Iterator[bytes]:
    at = 0
    while at < entry.size and (chunk := store.read(entry.key, offset=at, size=min(PIECE, entry.size - at))):
        at += len(chunk)
        yield chunk
    while at < entry.size:
        part = min(entry.size - at, PIECE)
        at += part
        yield bytes(part)
    yield bytes(-entry.size % _BLOCK)
