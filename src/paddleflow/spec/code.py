"""Snapshots of code: the caller's folder at submission, as a list of files whose content is kept in chunks by hash.

A chunk is a run of bytes of at most 8 MiB: part of a large file, or several small files one after the other, so that a
folder of thousands of small files is a few dozen chunks, and one changed file sends one chunk again. The snapshot's id is the
hash of its manifest. Pure, standard library only: the client builds manifests, the server checks and keeps them.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any

from paddleflow.base.values import dataclass
from paddleflow.errors import Fault, Invalid

MOST_FILES = 20_000  #: of one snapshot, links included
MOST_BYTES = 512 * 2**20  #: of all its files together
MOST_CHUNK = 8 * 2**20
MOST_PATH = 1000  #: bytes of a path
MOST_DEPTH = 64
MOST_MANIFEST = 16 * 2**20  #: bytes of its JSON
MOST_FAULTS = 20
MAGIC = b"PFCHUNK1"  #: before every chunk of an upload: magic, hash, length, bytes
HEADER = len(MAGIC) + 32 + 8

_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Part:
    """Some bytes of a chunk."""

    chunk: str  #: sha256 of the whole chunk
    offset: int
    length: int


@dataclass(frozen=True, slots=True)
class CodeFile:
    """A regular file: its parts one after the other."""

    path: str  #: below the folder, with slashes
    size: int
    executable: bool
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class CodeLink:
    """A symbolic link that stays inside the folder."""

    path: str
    target: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """A whole snapshot."""

    files: tuple[CodeFile, ...]
    links: tuple[CodeLink, ...] = ()

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def chunks(self) -> dict[str, int]:
        """The chunks that it needs → how many bytes of each at least."""
        needed: dict[str, int] = {}
        for file in self.files:
            for part in file.parts:
                needed[part.chunk] = max(needed.get(part.chunk, 0), part.offset + part.length)
        return needed

    def to_json(self) -> dict[str, Any]:
        return {
            "files": [
                [file.path, file.size, file.executable, [[p.chunk, p.offset, p.length] for p in file.parts]]
                for file in self.files
            ],
            "links": [[link.path, link.target] for link in self.links],
        }

    def encode(self) -> bytes:
        """The canonical bytes, whose hash is the id."""
        return json.dumps(self.to_json(), ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()

    @property
    def id(self) -> str:
        return hashlib.sha256(self.encode()).hexdigest()


def path_fault(path: object) -> str:
    """What is wrong with a path of a snapshot; empty when it is fine."""
    if not isinstance(path, str) or not path:
        return "is not text"
    parts = path.split("/")
    if path.startswith("/") or "\0" in path or any(part in {"", ".", ".."} for part in parts):
        return "must be relative, without empty parts, . and .."
    try:
        length = len(path.encode())
    except UnicodeEncodeError:
        return "is not UTF-8"
    if length > MOST_PATH or len(parts) > MOST_DEPTH or any(len(part.encode()) > 255 for part in parts):
        return f"is longer than {MOST_PATH} bytes or {MOST_DEPTH} folders"
    return ""


def link_fault(path: str, target: object) -> str:
    """What is wrong with a link's target; empty when it stays inside."""
    if not isinstance(target, str) or not target or "\0" in target:
        return "is not the target of a link"
    try:
        length = len(target.encode())
    except UnicodeEncodeError:
        return "is not UTF-8"
    if length > MOST_PATH:
        return "is not the target of a link"
    if target.startswith("/"):
        return "leads out of the folder"
    names = [part for part in target.split("/") if part not in {"", "."}]
    if ".." in names[next((at for at, part in enumerate(names) if part != ".."), len(names)) :]:
        return "has .. behind a name, which may be a link itself"
    inside = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return "leads out of the folder" if inside == ".." or inside.startswith("../") else ""


def read_manifest(data: object) -> Manifest:
    """The manifest in decoded JSON; `Invalid` lists what is wrong with it."""
    faults: list[Fault] = []
    if not isinstance(data, Mapping) or not isinstance(data.get("files"), list):
        raise Invalid("a manifest of code has files and links", code="InvalidCode")
    files, links = data["files"], data.get("links") or []
    if not isinstance(links, list) or len(files) + len(links) > MOST_FILES:
        raise Invalid(f"the code has more than {MOST_FILES:,} files", code="InvalidCode")
    found = [file for number, raw in enumerate(files) if (file := _file(raw, number, faults)) is not None]
    linked = [link for number, raw in enumerate(links) if (link := _link(raw, number, faults)) is not None]
    manifest = Manifest(tuple(found), tuple(linked))
    if not faults:
        faults += _tree_faults(manifest)
    if manifest.size > MOST_BYTES:
        faults.append(Fault("files", f"have {manifest.size:,} bytes in all, the maximum is {MOST_BYTES:,}"))
    if faults:
        raise Invalid.of(faults[:MOST_FAULTS], code="InvalidCode")
    return manifest


def _file(raw: object, number: int, faults: list[Fault]) -> CodeFile | None:
    where = f"files[{number}]"
    match raw:
        case [path, int(size), bool(executable), list(parts)] if size >= 0:
            if fault := path_fault(path):
                faults.append(Fault(f"{where}.path", f"{str(path)[:80]!r} {fault}"))
                return None
            read = [_part(part) for part in parts]
            known = [part for part in read if part is not None]
            if len(known) == len(read) and sum(part.length for part in known) == size:
                return CodeFile(str(path), size, executable, tuple(known))
            faults.append(Fault(where, f"the parts of {str(path)[:80]!r} are not its {size} bytes"))
        case _:
            faults.append(Fault(where, "is not [path, size, executable, parts]"))
    return None


def _part(raw: object) -> Part | None:
    match raw:
        case [str(chunk), int(offset), int(length)] if (
            _HASH.fullmatch(chunk) and offset >= 0 and 0 < length <= MOST_CHUNK and offset + length <= MOST_CHUNK
        ):
            return Part(chunk, offset, length)
    return None


def _link(raw: object, number: int, faults: list[Fault]) -> CodeLink | None:
    match raw:
        case [str(path), target]:
            fault = path_fault(path) or link_fault(path, target)
            if not fault:
                return CodeLink(path, str(target))
            faults.append(Fault(f"links[{number}]", f"{path[:80]!r} {fault}"))
        case _:
            faults.append(Fault(f"links[{number}]", "is not [path, target]"))
    return None


def _tree_faults(manifest: Manifest) -> Iterator[Fault]:
    """Nothing twice, and nothing below a file or a link: unpacking would leave the folder, or fail half way."""
    leaves: set[str] = set()
    for path in [*(file.path for file in manifest.files), *(link.path for link in manifest.links)]:
        if path in leaves:
            yield Fault("files", f"{path[:80]!r} is listed twice")
        leaves.add(path)
    for path in leaves:
        above = posixpath.dirname(path)
        while above:
            if above in leaves:
                yield Fault("files", f"{path[:80]!r} is below {above[:80]!r}, which is not a folder")
                break
            above = posixpath.dirname(above)


def pack_chunk(content: bytes) -> bytes:
    """A chunk as an upload has it."""
    return MAGIC + hashlib.sha256(content).digest() + len(content).to_bytes(8, "big") + content


def unpack_chunks(body: bytes) -> Iterator[tuple[str, bytes]]:
    """(hash, content) of every chunk of an upload; `Invalid` where its content is another."""
    at = 0
    while at < len(body):
        head = body[at : at + HEADER]
        length = int.from_bytes(head[-8:], "big") if len(head) == HEADER else 0
        if not head.startswith(MAGIC) or not 0 < length <= MOST_CHUNK or at + HEADER + length > len(body):
            raise Invalid(f"the upload holds no chunk at byte {at}", code="InvalidCode")
        content = body[at + HEADER : at + HEADER + length]
        name = head[len(MAGIC) : len(MAGIC) + 32].hex()
        if hashlib.sha256(content).hexdigest() != name:
            raise Invalid(f"chunk {name} was changed on its way", code="InvalidCode", hint="upload it again")
        yield name, content
        at += HEADER + length
