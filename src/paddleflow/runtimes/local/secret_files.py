"""The files that attempts find their secrets in: a folder of each attempt beside its log, for its user alone.

Written before the start, removed when the end is recorded. The job's user may own the folder above, so nothing here follows a
link: a folder is opened without, and files are made and removed relative to it.
"""

# Relative to a descriptor, which pathlib cannot, so:
# ruff: noqa: PTH102, PTH103, PTH106, PTH120, PTH208

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress

PREFIX = "secrets-"


def folder_of(job_folder: str, role: str, index: int) -> str:
    return f"{job_folder}/{PREFIX}{role}-{index}"


def write(folder: str, files: Mapping[str, str], owner: int | None) -> None:
    """Make the folder hold these and nothing else, readable for `owner` only; None: for this process's user."""
    os.makedirs(os.path.dirname(folder), exist_ok=True)
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    opened = os.open(folder, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_RDONLY)
    try:
        for name in os.listdir(opened):
            os.unlink(name, dir_fd=opened)
        for name, text in files.items():
            file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o400, dir_fd=opened)
            with os.fdopen(file, "wb") as stream:
                stream.write(text.encode("utf-8", "surrogatepass"))
                if owner is not None:
                    os.fchown(stream.fileno(), owner, owner)
        if owner is not None:
            os.fchown(opened, owner, owner)
    finally:
        os.close(opened)


def remove(folders: Iterable[str]) -> None:
    for folder in folders:
        _remove(folder)


def _remove(folder: str) -> None:
    """Fine when it is not there, or when its job has put something else in its place."""
    with suppress(OSError):
        opened = os.open(folder, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_RDONLY)
        try:
            for name in os.listdir(opened):
                os.unlink(name, dir_fd=opened)
        finally:
            os.close(opened)
        os.rmdir(folder)
