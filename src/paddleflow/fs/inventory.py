"""What lies in the folders of a cache, as anybody can read it: which objects, which are pinned, which files wait for the store.

Each cached file carries the object that it is as extended attributes, and pins are a file of lines beside them, so the commands
`fs cache` and `fs check` need no mount, and a mount notices what they change: a pin at the next eviction, a removed file at its
next open.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from paddleflow.base.values import dataclass
from paddleflow.errors import Invalid

FILLING = ".filling"  #: end of the names of files that are not whole yet
#: One attribute for checksum, version and key, so that it mostly fits into the inode and costs no block of its own.
_LABEL = "user.paddleflow"
_PINS = "pins"
MOST_PINS = 10_000
_PIECE = 4 * 2**20


@dataclass(frozen=True, slots=True)
class Label:
    """What a cached file says of itself."""

    crc: int  #: CRC-32 of its content
    tag: str
    key: str

    def write(self, file: int | Path) -> None:
        os.setxattr(file, _LABEL, f"{self.crc:08x}{self.tag}\0{self.key}".encode("utf-8", "surrogateescape"))


def read_label(file: int | Path) -> Label | None:
    """None: it has none, or one that is none of ours."""
    try:
        text = os.getxattr(file, _LABEL).decode("utf-8", "surrogateescape")
        tag, _, key = text[8:].partition("\0")
        return Label(int(text[:8], 16), tag, key)
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class CachedObject:
    """A whole file of the cache."""

    path: Path
    key: str
    tag: str
    size: int
    used_at: float  #: when it was last written to the cache

    def is_intact(self) -> bool:
        """Whether the content is what was fetched. A file without a checksum is not."""
        try:
            with self.path.open("rb") as file:
                label, crc = read_label(file.fileno()), 0
                while piece := file.read(_PIECE):
                    crc = zlib.crc32(piece, crc)
        except OSError:
            return False
        return label is not None and crc == label.crc


def cached_objects(folders: Sequence[Path]) -> Iterator[CachedObject]:
    """What lies in the folders (`data` of each disk), in no order."""
    for folder in folders:
        for path in folder.glob("??/*"):
            if path.name.endswith(FILLING):
                continue
            with suppress(OSError):  # removed meanwhile
                about = path.stat()
                label = read_label(path) or Label(0, "", "")
                yield CachedObject(path, label.key, label.tag, about.st_size, about.st_mtime)


@dataclass(frozen=True, slots=True)
class StagedFile:
    """A file on its way to the store."""

    path: Path
    key: str  #: empty: it was never acknowledged
    replaces: str
    size: int  #: -1: the content is not there
    fault: str = ""  #: what is wrong with its note


def staged_files(folders: Sequence[Path]) -> Iterator[StagedFile]:
    """What lies in the folders `staging` of each disk."""
    for folder in folders:
        names = {path.stem for path in folder.glob("*") if path.suffix in (".note", ".data")}
        for name in sorted(names):
            path = folder / f"{name}.data"
            size = path.stat().st_size if path.exists() else -1
            try:
                found = json.loads(path.with_suffix(".note").read_text("utf-8"))
                yield StagedFile(path, str(found["key"]), str(found["replaces"]), size)
            except FileNotFoundError:
                yield StagedFile(path, "", "", size)
            except (OSError, ValueError, KeyError, TypeError) as error:
                yield StagedFile(path, "", "", size, fault=f"its note cannot be read: {error}")


def is_below(key: str, prefix: str) -> bool:
    return not prefix or key == prefix or key.startswith(f"{prefix}/")


def read_pins(folder: Path) -> list[str]:
    """The pinned paths of a cache, whose first disk's `data` is `folder`."""
    try:
        found = json.loads((folder.parent / _PINS).read_text("utf-8"))
    except (OSError, ValueError):
        return []
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []


def write_pins(folder: Path, pins: Sequence[str]) -> None:
    if len(pins) > MOST_PINS:
        raise Invalid(f"{len(pins)} paths are pinned; at most {MOST_PINS} can be", hint="pin a folder above them")
    fresh = folder.parent / f"{_PINS}.new"
    fresh.write_text(json.dumps(sorted(set(pins))), "utf-8")
    fresh.replace(folder.parent / _PINS)


class Pins:
    """Which files must stay, as it is written down now."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folder = folders[0]
        self._read_at = (0, 0)
        self._pins: frozenset[str] = frozenset()

    def hold(self, path: Path) -> bool:
        """Whether a cached file is of a pinned path."""
        try:
            about = (self._folder.parent / _PINS).stat()
        except OSError:
            return False
        if self._read_at != (about.st_mtime_ns, about.st_ino):
            self._pins = frozenset(read_pins(self._folder))
            self._read_at = (about.st_mtime_ns, about.st_ino)
        if not self._pins:
            return False
        label = read_label(path)
        parts = label.key.split("/") if label is not None else [""]
        return any("/".join(parts[:count]) in self._pins for count in range(len(parts) + 1))
