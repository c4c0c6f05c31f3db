"""Files of runs on their storages: read, made, measured, removed. Blocks on the disk; called in threads, never in a transaction.

Every path is looked at with its links followed, and must lie in the storage: `..`, absolute paths and links that leave it are
refused.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from paddleflow.errors import Invalid, NotFound
from paddleflow.runs.facts import Measurement
from paddleflow.runs.names import ARTIFACTS

_CHUNK = 2**20


def within(folder: Path, relative: str) -> Path:
    """The real path behind one on a storage. `Invalid` for one that leaves it."""
    parts = relative.split("/")
    if relative.startswith("/") or ".." in parts or "\0" in relative:
        raise Invalid(
            f"path[{relative[:200]}] must stay in its storage: no leading / and no ..", code="InvalidArguments"
        )
    try:
        root = folder.resolve()
        real = (root / relative).resolve()
    except (OSError, RuntimeError) as error:
        raise Invalid(f"path[{relative[:200]}] cannot be followed: {error}", code="InvalidArguments") from error
    if real != root and root not in real.parents:
        raise Invalid(f"path[{relative[:200]}] leaves its storage by a link", code="InvalidArguments")
    return real


def read_texts(folder: Path, paths: Mapping[str, str], most: int) -> dict[str, str]:
    """The contents of artifacts by name; `Invalid` names the first that cannot be used."""
    return {name: _read_text(folder, name, path, most) for name, path in paths.items()}


def _read_text(folder: Path, name: str, path: str, most: int) -> str:
    if "," in path or not path:
        raise Invalid(f"artifact[{name}] is not one file: {path[:200] or 'nothing'}")
    file = within(folder, path)
    try:
        with file.open("rb") as opened:
            data = opened.read(most + 1)
    except OSError as error:
        raise Invalid(f"artifact[{name}] at {path} cannot be read: {error.strerror}") from error
    if len(data) >= most:
        raise Invalid(f"artifact[{name}] at {path} is too large: less than {most} bytes are possible here")
    try:
        return data.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise Invalid(f"artifact[{name}] at {path} is not text in UTF-8") from error


def make_folder(folder: Path, path: str) -> None:
    """The part of a storage that steps see. `Invalid` when something else is there."""
    try:
        within(folder, path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Invalid(f"folder {path} of the main storage cannot be made: {error.strerror}") from error


def make_places(folder: Path, paths: Iterable[str]) -> None:
    """The parent folders of outputs; what an earlier try left there is removed. `Invalid` when that cannot be."""
    for path in paths:
        place = within(folder, path)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)
            else:
                place.unlink(missing_ok=True)
        except OSError as error:
            raise Invalid(f"output artifact {path} cannot be made: {error.strerror}") from error


def measure(folder: Path, path: str) -> Measurement:
    """Kind, hash and size of what a step made. A folder's hash is that of its listing with the hash of every file."""
    place = within(folder, path)
    try:
        if place.is_dir():
            return _measure_folder(place)
        return Measurement("file", _hash(place), place.stat().st_size)
    except OSError:
        return Measurement("missing")


def _measure_folder(place: Path) -> Measurement:
    digest, size = hashlib.sha256(), 0
    for relative, info in _files(place):
        size += info.st_size
        inner = _hash(place / relative) if stat.S_ISREG(info.st_mode) else "link"
        digest.update(f"{relative}\0{inner}\n".encode("utf-8", "surrogateescape"))
    return Measurement("folder", digest.hexdigest(), size)


def signature(folder: Path, path: str) -> str:
    """Changes when something at or below a path changes: names, sizes and times of all files, not those of folders."""
    place = within(folder, path.strip("/") or ".")
    try:
        if not place.is_dir():
            info = place.stat()
            return f"{info.st_size}:{info.st_mtime_ns}"
        digest = hashlib.sha256()
        for relative, info in _files(place):
            if not relative.startswith(f"{ARTIFACTS}/"):  # what runs write is not what they read
                digest.update(f"{relative}\0{info.st_size}\0{info.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
        return digest.hexdigest()
    except OSError:
        return "missing"


def _files(place: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Everything below a folder that is no folder, in one order; links are not followed."""
    rest = [""]
    while rest:
        below = rest.pop()
        with os.scandir(place / below) as entries:
            found = sorted(entries, key=lambda entry: entry.name, reverse=True)
        for entry in reversed(found):
            relative = f"{below}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                rest.append(f"{relative}/")
            else:
                yield relative, entry.stat(follow_symlinks=False)


def _hash(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb", buffering=0) as opened:
        while chunk := opened.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def remove_run(folder: Path, sub_path: str, run: str) -> None:
    """All artifacts of a run; it may have none."""
    place = within(folder, f"{sub_path.strip('/')}/{ARTIFACTS}/{run}".lstrip("/"))
    shutil.rmtree(place, ignore_errors=True)


def existing(folder: Path, path: str) -> Path:
    """The real file or folder of an artifact; `NotFound` when there is none."""
    place = within(folder, path)
    if not place.exists():
        raise NotFound(f"artifact[{path[:200]}] is not there any more", code="ArtifactEventNotFound")
    return place
