"""Builds parts once: a stamp, written last, says from what a part was made, so an interrupted build is simply done again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from scripts.lib.cluster import debian, golang, images
from scripts.lib.cluster.parts import PARTS, Part
from scripts.lib.cluster.places import CACHE, REPOSITORY, locked
from scripts.lib.cluster.trouble import Trouble, say


def build(names: Iterable[str]) -> None:
    """Have the parts, and what they need. A second caller waits for the first and then finds the work done."""
    wanted = [part for part in with_needs(names) if not built(part)]
    if not wanted:
        return
    for part in wanted:  # said before an hour of work, not after
        if part.go:
            golang.require_go()
        if part.root:
            debian.require_root(f"the part {part.name}")
    with locked(CACHE / "lock", "another build is at work; waiting for it"):
        for part in wanted:
            if built(part):
                continue
            say(f"building {part.name}: {part.what}")
            stamp = stamp_of(part)
            part.make()
            _stamp_file(part).parent.mkdir(parents=True, exist_ok=True)
            new = _stamp_file(part).with_suffix(".new")
            new.write_text(stamp)
            new.replace(_stamp_file(part))
        images.forget_scratch()


def require(names: Iterable[str]) -> None:
    """Refuse with the command that helps when a part is not built."""
    lacking = [part.name for part in with_needs(names) if not built(part)]
    if lacking:
        raise Trouble(f"not built: {', '.join(lacking)}", f"scripts/cluster build {' '.join(lacking)}")


def with_needs(names: Iterable[str]) -> list[Part]:
    """The parts of these names, each after what it needs."""
    found: dict[str, Part] = {}
    for name in names:
        if name not in PARTS:
            raise Trouble(f"there is no part {name!r}", f"known: {', '.join(PARTS)}")
        for part in (*with_needs(PARTS[name].needs), PARTS[name]):
            found.setdefault(part.name, part)
    return list(found.values())


def built(part: Part) -> bool:
    """Whether the part is there, made from what lies here now."""
    try:
        stamp = _stamp_file(part).read_text()
    except OSError:
        return False
    return stamp == stamp_of(part) and all(result.exists() for result in part.results)


def _stamp_file(part: Part) -> Path:
    return part.home / "stamps" / part.name


def stamp_of(part: Part) -> str:
    """One word for everything the part is made from."""
    digest = hashlib.sha256(part.recipe.encode())
    for need in part.needs:
        digest.update(stamp_of(PARTS[need]).encode())
    for source in part.sources:
        for file in sorted(source.rglob("*")) if source.is_dir() else [source]:
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"{file.relative_to(REPOSITORY)}\0".encode())
                digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
