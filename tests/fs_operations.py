"""Random operations of a file system, done on two folders, with everything a program can see compared."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "c", "d/a", "d/b", "d/e/a", "d", "d/e", "f"])
OFFSETS = st.sampled_from([0, 1, 4095, 4096, 10_000, 200_000])
SIZES = st.sampled_from([0, 1, 100, 4096, 5000, 150_000])


@dataclass(frozen=True)
class Operation:
    """One call: its name and arguments."""

    call: str
    arguments: tuple[Any, ...]


def operations(*, links: bool = True) -> st.SearchStrategy[list[Operation]]:
    """Lists of operations; without hard links for stores that have none."""
    kinds = [
        st.builds(lambda *a: Operation("write", a), NAMES, OFFSETS, SIZES, st.integers(0, 255)),
        st.builds(lambda *a: Operation("write", a), NAMES, OFFSETS, SIZES, st.integers(0, 255)),
        st.builds(lambda *a: Operation("replace", a), NAMES, SIZES, st.integers(0, 255)),
        st.builds(lambda *a: Operation("append", a), NAMES, SIZES, st.integers(0, 255)),
        st.builds(lambda *a: Operation("truncate", a), NAMES, SIZES),
        st.builds(lambda *a: Operation("read", a), NAMES, OFFSETS, SIZES),
        st.builds(lambda *a: Operation("rename", a), NAMES, NAMES),
        st.builds(lambda *a: Operation("unlink", a), NAMES),
        st.builds(lambda *a: Operation("mkdir", a), NAMES),
        st.builds(lambda *a: Operation("rmdir", a), NAMES),
        st.builds(lambda *a: Operation("symlink", a), NAMES, NAMES),
        st.builds(lambda *a: Operation("chmod", a), NAMES, st.sampled_from([0o600, 0o755, 0o444, 0o4755])),
        st.builds(lambda *a: Operation("utime", a), NAMES, st.integers(0, 2**31)),
        st.builds(lambda *a: Operation("setxattr", a), NAMES, st.binary(max_size=50)),
        st.builds(lambda *a: Operation("stat", a), NAMES),
        st.builds(lambda *a: Operation("listdir", a), NAMES),
        st.builds(lambda *a: Operation("hold", a), NAMES),
        st.builds(lambda *a: Operation("use_held", a), OFFSETS, SIZES, st.integers(0, 255)),
        st.builds(lambda: Operation("let_go", ())),
    ]
    if links:
        kinds.append(st.builds(lambda *a: Operation("link", a), NAMES, NAMES))
    return st.lists(st.one_of(kinds), min_size=1, max_size=30)


class Actor:
    """Does operations below a folder; each gives what a program sees: a value, or the name of the error."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self._held: list[int] = []

    def do(self, operation: Operation) -> object:
        method: Callable[..., object] = getattr(self, f"_{operation.call}")
        try:
            return method(*operation.arguments)
        except OSError as error:
            return errno.errorcode.get(error.errno or 0, str(error))

    def _write(self, name: str, offset: int, size: int, letter: int) -> object:
        fd = os.open(self.top / name, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            return os.pwrite(fd, bytes([letter]) * size, offset), os.fstat(fd).st_size
        finally:
            os.close(fd)

    def _replace(self, name: str, size: int, letter: int) -> object:
        return (self.top / name).write_bytes(bytes([letter]) * size)

    def _append(self, name: str, size: int, letter: int) -> object:
        with (self.top / name).open("ab") as file:
            return file.write(bytes([letter]) * size)

    def _truncate(self, name: str, size: int) -> None:
        os.truncate(self.top / name, size)

    def _read(self, name: str, offset: int, size: int) -> object:
        with (self.top / name).open("rb") as file:
            return os.pread(file.fileno(), size, offset)

    def _rename(self, name: str, new: str) -> None:
        os.rename(self.top / name, self.top / new)  # noqa: PTH104 pathlib changes the errors

    def _unlink(self, name: str) -> None:
        (self.top / name).unlink()

    def _mkdir(self, name: str) -> None:
        (self.top / name).mkdir()

    def _rmdir(self, name: str) -> None:
        (self.top / name).rmdir()

    def _symlink(self, target: str, name: str) -> None:
        (self.top / name).symlink_to(target)

    def _link(self, name: str, new: str) -> None:
        os.link(self.top / name, self.top / new, follow_symlinks=False)

    def _chmod(self, name: str, mode: int) -> None:
        (self.top / name).chmod(mode)

    def _utime(self, name: str, seconds: int) -> None:
        os.utime(self.top / name, (seconds, seconds))

    def _setxattr(self, name: str, value: bytes) -> object:
        os.setxattr(self.top / name, "user.test", value)
        return os.getxattr(self.top / name, "user.test")

    def _stat(self, name: str) -> object:
        return seen(self.top / name)

    def _listdir(self, name: str) -> object:
        return sorted(each.name for each in (self.top / name).iterdir())

    def _hold(self, name: str) -> object:
        self._held.append(os.open(self.top / name, os.O_RDWR))
        return None

    def _use_held(self, offset: int, size: int, letter: int) -> object:
        if not self._held:
            return None
        fd = self._held[-1]
        return os.pwrite(fd, bytes([letter]) * size, offset), os.pread(fd, 300_000, 0), os.fstat(fd).st_size

    def _let_go(self) -> object:
        while self._held:
            os.close(self._held.pop())
        return None

    def everything(self) -> dict[str, object]:
        """What lies below, with contents."""
        self._let_go()
        found: dict[str, object] = {}
        for folder, folders, files in os.walk(self.top):
            for name in (*folders, *files):
                path = Path(folder) / name
                content = path.read_bytes() if stat.S_ISREG(path.lstat().st_mode) else b""
                found[str(path.relative_to(self.top))] = (seen(path), content)
        return found


def seen(path: Path) -> tuple[object, ...]:
    """What `lstat` tells a program that must be the same on both sides."""
    found = path.lstat()
    folder = stat.S_ISDIR(found.st_mode)
    target = str(path.readlink()) if stat.S_ISLNK(found.st_mode) else ""
    size = 0 if folder else found.st_size
    return stat.filemode(found.st_mode), found.st_uid, found.st_gid, size, 0 if folder else found.st_nlink, target
