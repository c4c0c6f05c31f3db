"""What may be said of a pipeline or a step beside its work: cache, failure, storages, new tries.

Each has `compile()`, which gives its part of the document: only what was set.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paddleflow.pipeline.names import is_number, is_whole, refuse

FAIL_FAST = "fail_fast"
FAIL_CONTINUE = "continue"


class FSScope:
    """Paths of a storage whose change makes a cached result stale; several are joined by commas."""

    def __init__(self, name: str, path: str | None = None) -> None:
        self.name = name
        self.path = path

    def compile(self) -> dict[str, Any]:
        if not self.name:
            refuse("FSScope: name is empty, it must be the name of a storage")
        return {"name": self.name} | ({"path": self.path} if self.path else {})


class CacheOptions:
    """Whether a step may be served from an earlier one, and for how many seconds that one counts (-1: for ever)."""

    def __init__(
        self,
        enable: bool | None = False,
        fs_scope: FSScope | Sequence[FSScope] | None = None,
        max_expired_time: int | None = -1,
    ) -> None:
        self.enable = enable
        self.fs_scope = fs_scope
        self.max_expired_time = max_expired_time

    def compile(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.enable is not None:
            found["enable"] = bool(self.enable)
        if self.fs_scope is not None:
            given: object = self.fs_scope
            found["fs_scope"] = [_scope(scope) for scope in (given if isinstance(given, list | tuple) else [given])]
        if self.max_expired_time is not None:
            found["max_expired_time"] = int(self.max_expired_time)
        return found


def _scope(given: object) -> dict[str, Any]:
    if not isinstance(given, FSScope):
        refuse(f"CacheOptions: fs_scope has {given!r}, it must be FSScope or a list of them")
    return given.compile()


class FailureOptions:
    """What happens to the rest when a step fails: FAIL_FAST ends it, FAIL_CONTINUE only what depends on the step."""

    def __init__(self, strategy: str = FAIL_FAST) -> None:
        if strategy not in (FAIL_FAST, FAIL_CONTINUE):
            refuse(f"FailureOptions: strategy is {strategy!r}, it must be {FAIL_FAST!r} or {FAIL_CONTINUE!r}")
        self.strategy = strategy

    def compile(self) -> dict[str, Any]:
        return {"strategy": self.strategy}


class ExtraFS:
    """One more storage that steps see."""

    def __init__(
        self, name: str, sub_path: str | None = None, mount_path: str | None = None, read_only: bool = False
    ) -> None:
        self.name = name
        self.sub_path = sub_path
        self.mount_path = mount_path
        self.read_only = read_only

    def compile(self) -> dict[str, Any]:
        found = self._place()
        if not isinstance(self.read_only, bool):
            refuse(f"ExtraFS[{self.name}]: read_only is {self.read_only!r}, it must be True or False")
        found["read_only"] = self.read_only
        return found

    def _place(self) -> dict[str, Any]:
        if not self.name:
            refuse(f"{type(self).__name__}: name is empty, it must be the name of a storage")
        found: dict[str, Any] = {"name": self.name}
        if self.sub_path:
            found["sub_path"] = self.sub_path
        if self.mount_path:
            found["mount_path"] = self.mount_path
        return found


class MainFS(ExtraFS):
    """The storage that artifacts lie on. It is always writable."""

    def __init__(self, name: str, sub_path: str | None = None, mount_path: str | None = None) -> None:
        super().__init__(name, sub_path, mount_path)

    def compile(self) -> dict[str, Any]:
        return self._place()


class FSOptions:
    """The storages of a pipeline."""

    def __init__(self, main_fs: MainFS | None = None, extra_fs: ExtraFS | Sequence[ExtraFS] | None = None) -> None:
        self.main_fs = main_fs
        self.extra_fs = extra_fs

    def compile(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.main_fs:
            if not isinstance(self.main_fs, MainFS):
                refuse(f"FSOptions: main_fs is {self.main_fs!r}, it must be MainFS")
            found["main_fs"] = self.main_fs.compile()
        if self.extra_fs:
            found["extra_fs"] = mounts(self.extra_fs, "FSOptions")
        return found


def requirement_lines(given: str | Path | Sequence[str], where: str) -> list[str]:
    """The lines of a requirements file: given as such, as one text, or as the path of the file."""
    if isinstance(given, str | Path):
        if isinstance(given, Path) or ("\n" not in given and given.endswith(".txt")):
            try:
                given = Path(given).read_text("utf-8")
            except OSError as error:
                refuse(f"{where}: requirements are {str(given)!r}, which cannot be read: {error.strerror}")
        given = str(given).splitlines()
    return [line for line in given if line.strip()]


def mounts(given: ExtraFS | Sequence[ExtraFS] | None, where: str) -> list[dict[str, Any]]:
    """One storage or several as the document lists them."""
    several = list(given) if isinstance(given, list | tuple) else [given]
    if not all(isinstance(one, ExtraFS) for one in several):
        refuse(f"{where}: extra_fs is {given!r}, it must be ExtraFS or a list of them")
    return [one.compile() for one in several if isinstance(one, ExtraFS)]


class Retry:
    """How often a failed step is tried again: after `delay` seconds, then `factor` times longer each, at most `most`.

    With `exit_codes` only after those; otherwise after any failure.
    """

    def __init__(
        self,
        times: int,
        delay: float | None = None,
        factor: float | None = None,
        most: float | None = None,
        exit_codes: Sequence[int] = (),
    ) -> None:
        if not is_whole(times) or times < 0:
            refuse(f"Retry: times is {times!r}, it must be a whole number of 0 or more")
        for name, value in (("delay", delay), ("factor", factor), ("most", most)):
            if value is not None and (not is_number(value) or value < 0):
                refuse(f"Retry: {name} is {value!r}, it must be a number of 0 or more")
        self.times = times
        self.delay = delay
        self.factor = factor
        self.most = most
        self.exit_codes = tuple(exit_codes)

    def compile(self) -> dict[str, Any]:
        given = {
            "times": self.times,
            "delay": self.delay,
            "factor": self.factor,
            "most": self.most,
            "exit_codes": list(self.exit_codes) or None,
        }
        return {key: value for key, value in given.items() if value is not None}
