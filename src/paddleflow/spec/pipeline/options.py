"""The blocks that stand at pipelines and at steps: cache, storages, retry, timeout."""

from __future__ import annotations

import re

from paddleflow.base import names
from paddleflow.base.values import dataclass
from paddleflow.spec.pipeline.faults import shown
from paddleflow.spec.pipeline.model import Cache, FsMount, FsScope, Retry
from paddleflow.spec.pipeline.nodes import YamlNode
from paddleflow.spec.pipeline.reader import Reader, spellings

MOST_RETRIES = 100
MOST_SECONDS = 366 * 86_400

CACHE = spellings(("enable", "max_expired_time", "fs_scope"))
SCOPE = spellings(("name", "path"))
MOUNT = spellings(("name", "mount_path", "sub_path", "read_only"))
RETRY = spellings(("times", "delay", "factor", "most", "exit_codes"))

_DURATION = re.compile(r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9}(?:\.\d{1,6})?)s)?", re.ASCII)
_UNITS = (86_400, 3_600, 60, 1)


@dataclass(slots=True)
class CacheDraft:
    """What one `cache` block says; None where it says nothing."""

    enable: bool | None = None
    max_expired_time: int | None = None
    fs_scope: tuple[FsScope, ...] = ()

    def under(self, outer: CacheDraft) -> Cache:
        """This block of a step, with the pipeline's where it says nothing."""
        enable = outer.enable if self.enable is None else self.enable
        expires = outer.max_expired_time if self.max_expired_time is None else self.max_expired_time
        return Cache(bool(enable), -1 if expires is None else expires, self.fs_scope + outer.fs_scope)


def read_cache(reader: Reader, node: YamlNode, path: str) -> CacheDraft:
    draft = CacheDraft()
    fields = reader.fields(node, path, "[cache]", CACHE)
    if "enable" in fields:
        draft.enable = reader.boolean(fields["enable"], f"{path}.enable")
    if "max_expired_time" in fields:
        expires = fields["max_expired_time"]
        draft.max_expired_time = reader.integer(expires, f"{path}.max_expired_time", -1)
        if draft.max_expired_time < -1:
            reader.wrong(expires, f"{path}.max_expired_time", "seconds, or -1 for ever")
    if "fs_scope" in fields:
        where = f"{path}.fs_scope"
        found = [_scope(reader, item, where) for item in reader.items(fields["fs_scope"], where)]
        draft.fs_scope = tuple(scope for scope in found if scope)
    return draft


def _scope(reader: Reader, node: YamlNode, path: str) -> FsScope | None:
    fields = reader.fields(node, path, "[fs_scope]", SCOPE)
    if not isinstance(node.value, dict):
        return None
    if "name" not in fields:
        reader.faults.add(node.mark, path, "[name] in fs_scope must be set")
        return None
    paths = ["/"]
    if "path" in fields:
        paths = reader.words(fields["path"], f"{path}.path") or paths
        for each in paths:
            _inside(reader, fields["path"], f"{path}.path", each)
    return FsScope(reader.text(fields["name"], f"{path}.name"), tuple(paths))


def read_mounts(reader: Reader, node: YamlNode, path: str) -> tuple[FsMount, ...]:
    found = [read_mount(reader, item, path) for item in reader.items(node, path)]
    return tuple(mount for mount in found if mount)


def read_mount(reader: Reader, node: YamlNode, path: str) -> FsMount | None:
    what = path.rpartition(".")[2]
    fields = reader.fields(node, path, f"[{what}]", MOUNT)
    if not isinstance(node.value, dict):
        return None
    texts = {
        key: reader.text(fields[key], f"{path}.{key}") for key in ("name", "mount_path", "sub_path") if key in fields
    }
    name, mount_path, sub_path = (texts.get(key, "") for key in ("name", "mount_path", "sub_path"))
    if not name:
        reader.faults.add(node.mark, path, f"[name] in [{what}] must not be empty")
    elif fault := names.STORAGE.fault(name):
        reader.faults.add(fields["name"].mark, f"{path}.name", fault)
    if mount_path and (not mount_path.startswith("/") or not mount_path.strip("/")):
        reader.wrong(fields["mount_path"], f"{path}.mount_path", "an absolute path below /")
    if sub_path.startswith("/"):
        reader.faults.add(
            fields["sub_path"].mark,
            f"{path}.sub_path",
            f"[sub_path] in [{what}] should not start with '/', found [{shown(sub_path)}]",
            "it counts from the root of the storage",
        )
    for key in ("mount_path", "sub_path"):
        if key in fields:
            _inside(reader, fields[key], f"{path}.{key}", texts[key])
    read_only = reader.boolean(fields["read_only"], f"{path}.read_only") if "read_only" in fields else False
    if read_only and what == "main_fs":
        reader.faults.add(
            fields["read_only"].mark,
            f"{path}.read_only",
            "[read_only] of [main_fs] can only be false: artifacts are kept there",
        )
    return FsMount(name, mount_path, sub_path, read_only)


def _inside(reader: Reader, node: YamlNode, path: str, value: str) -> None:
    if ".." in value.split("/") or "\0" in value:
        reader.faults.add(node.mark, path, f"the path [{shown(value)}] leaves the storage", "write it without ..")


def read_retry(reader: Reader, node: YamlNode, path: str) -> Retry:
    if not isinstance(node.value, dict):
        return Retry(times=_times(reader, node, path))
    fields = reader.fields(node, path, "[retry]", RETRY)
    standard = Retry()
    if "times" not in fields:
        reader.faults.add(node.mark, path, "[retry] says nothing about [times]", "times: 3")
    times = _times(reader, fields["times"], f"{path}.times") if "times" in fields else 0
    seconds = {
        key: read_seconds(reader, fields[key], f"{path}.{key}") if key in fields else getattr(standard, key)
        for key in ("delay", "most")
    }
    factor = reader.number(fields["factor"], f"{path}.factor", 1.0) if "factor" in fields else standard.factor
    if not 1 <= factor <= 100:
        reader.wrong(fields["factor"], f"{path}.factor", "a number from 1 to 100")
    codes: list[int] = []
    if "exit_codes" in fields:
        where = f"{path}.exit_codes"
        for item in reader.items(fields["exit_codes"], where):
            codes.append(reader.integer(item, where, 1))
            if not 1 <= codes[-1] <= 255:
                reader.wrong(item, where, "numbers from 1 to 255")
    return Retry(times, seconds["delay"], factor, seconds["most"], tuple(codes))


def _times(reader: Reader, node: YamlNode, path: str) -> int:
    times = reader.integer(node, path)
    if not 0 <= times <= MOST_RETRIES:
        reader.wrong(node, path, f"a whole number from 0 to {MOST_RETRIES}")
    return times


def read_seconds(reader: Reader, node: YamlNode, path: str) -> float:
    """Seconds as a number, or a text such as `90`, `30m`, `1h30m`, `45s`, `2d`."""
    value = node.value
    seconds = -1.0
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str):
        text = value.strip().lower()
        match = _DURATION.fullmatch(text) if text else None
        if match:
            seconds = sum(float(part) * unit for part, unit in zip(match.groups(), _UNITS, strict=True) if part)
        elif re.fullmatch(r"\d{1,9}(\.\d{1,6})?", text, re.ASCII):
            seconds = float(text)
    if not 0 <= seconds <= MOST_SECONDS:
        reader.wrong(node, path, f"seconds from 0 to {MOST_SECONDS:,}, or a text such as 30m or 1h30m")
        return 0.0
    return seconds
