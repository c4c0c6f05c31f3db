"""Builds parts once: a stamp, written last, says from what a part was made, so an interrupted build is simply done again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.lib.cluster import debian, golang, images
from scripts.lib.cluster.errors import ClusterError, say
from scripts.lib.cluster.parts import PARTS, Part
from scripts.lib.cluster.paths import CACHE, REPOSITORY, SOURCES, locked


@dataclass(frozen=True)
class Builds:
    """The parts that can be built, and the folders that they are built in."""

    parts: Mapping[str, Part]
    cache: Path
    repository: Path
    scratch: Path

    def build(self, names: Iterable[str]) -> None:
        """Have the parts, and what they need. A second caller waits for the first and then finds the work done."""
        wanted = [part for part in self.with_needs(names) if not self.built(part)]
        if not wanted:
            return
        for part in wanted:  # said before an hour of work, not after
            if part.go:
                golang.require_go()
            if part.root:
                debian.require_root(f"the part {part.name}")
        with locked(self.cache / "lock", "another build is at work; waiting for it"):
            for part in wanted:
                if self.built(part):
                    continue
                say(f"building {part.name}: {part.what}")
                stamp = self.stamp_of(part)
                part.make()
                self._stamp_file(part).parent.mkdir(parents=True, exist_ok=True)
                new = self._stamp_file(part).with_suffix(".new")
                new.write_text(stamp)
                new.replace(self._stamp_file(part))
            images.forget_scratch(self.scratch)

    def require(self, names: Iterable[str]) -> None:
        """Refuse with the command that helps when a part is not built."""
        lacking = [part.name for part in self.with_needs(names) if not self.built(part)]
        if lacking:
            raise ClusterError(f"not built: {', '.join(lacking)}", f"scripts/cluster build {' '.join(lacking)}")

    def with_needs(self, names: Iterable[str]) -> list[Part]:
        """The parts of these names, each after what it needs."""
        found: dict[str, Part] = {}
        for name in names:
            if name not in self.parts:
                raise ClusterError(f"there is no part {name!r}", f"known: {', '.join(self.parts)}")
            for part in (*self.with_needs(self.parts[name].needs), self.parts[name]):
                found.setdefault(part.name, part)
        return list(found.values())

    def built(self, part: Part) -> bool:
        """Whether the part is there, made from what lies here now."""
        try:
            stamp = self._stamp_file(part).read_text()
        except OSError:
            return False
        return stamp == self.stamp_of(part) and all(result.exists() for result in part.results)

    def _stamp_file(self, part: Part) -> Path:
        return part.home / "stamps" / part.name

    def stamp_of(self, part: Part) -> str:
        """One word for everything the part is made from."""
        digest = hashlib.sha256(part.recipe.encode())
        for need in part.needs:
            digest.update(self.stamp_of(self.parts[need]).encode())
        for source in part.sources:
            for file in sorted(source.rglob("*")) if source.is_dir() else [source]:
                if file.is_file() and "__pycache__" not in file.parts:
                    digest.update(f"{file.relative_to(self.repository)}\0".encode())
                    digest.update(hashlib.sha256(file.read_bytes()).digest())
        return digest.hexdigest()


ALL = Builds(PARTS, CACHE, REPOSITORY, SOURCES)
