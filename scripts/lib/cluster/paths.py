"""Where things lie: what is built, shared by all clusters, and the folder of each cluster that is up.

Everything is in the user's cache folder, so that all clones of the repository build once.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from scripts.lib.cluster.errors import ClusterError, say

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[2]
MODULES = HERE / "modules"
MANIFESTS = HERE / "manifests"

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paddleflow" / "cluster"
PROGRAMS = CACHE / "bin"
IMAGES = CACHE / "images"
DEFINITIONS = CACHE / "crds"  #: custom resource definitions of the parts, a folder each
OWN = REPOSITORY / "build" / "cluster"  #: what is made from this clone's own sources; not shared with other clones
SOURCES = CACHE / "src"  #: scratch space of builds; may be removed at any time
CLUSTERS = CACHE / "run"  #: a folder per cluster that is up

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")


def folder_of(name: str, clusters: Path = CLUSTERS) -> Path:
    """The folder of a cluster, whether it is up or not."""
    if not _NAME.fullmatch(name):
        raise ClusterError(
            f"a cluster cannot be called {name!r}", "1 to 32 lower-case letters, digits and dashes, no dash at the ends"
        )
    return clusters / name


@contextmanager
def locked(file: Path, waiting: str) -> Iterator[None]:
    """Hold the lock of `file`; who finds it taken says `waiting` and waits. The kernel frees it when its holder dies."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(waiting)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
