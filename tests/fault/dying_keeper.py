"""A keeper that kills itself at a chosen operation, for ``tests/fault/test_keeper.py``.

Started as ``python dying_keeper.py FOLDER PACKAGE DATA LISTENER``. The file FOLDER/die-at holds ``<n> before`` or
``<n> after``: the keeper kills itself with SIGKILL around its n-th operation that changes something outside itself
(spawn, write, unlink, wait), in whichever of its threads and children that is. The file is removed at once, so only the first
keeper dies, and only once; FOLDER/died is 1 once it was told to.
"""

from __future__ import annotations

import mmap
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

OPERATIONS = ("posix_spawn", "write", "unlink", "wait4", "killpg", "rename", "mkdir", "rmdir")


def arm(folder: Path) -> None:
    plan = folder / "die-at"
    number, moment = plan.read_text().split()
    plan.unlink()
    reached = 0
    # Memory, for threads and children of the keeper may neither see the folder nor have its descriptors.
    (folder / "died").write_bytes(b"0")
    with (folder / "died").open("r+b") as file:
        died = mmap.mmap(file.fileno(), 1)

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*args: Any, **options: Any) -> Any:
            nonlocal reached
            reached += 1
            dies = reached == int(number) and died[:] == b"0"
            if dies and moment == "before":
                die()
            try:
                return real(*args, **options)
            finally:
                if dies:
                    die()

        return operation

    def die() -> None:
        died[:] = b"1"
        os.kill(os.getpid(), signal.SIGKILL)

    for name in OPERATIONS:
        setattr(os, name, wrap(getattr(os, name)))


def main() -> None:
    folder, package, data, listener = sys.argv[1:5]
    sys.path.append(package)
    from paddleflow.runtimes.local import keeper

    if (Path(folder) / "die-at").exists():
        arm(Path(folder))
    keeper.main(data, int(listener))


if __name__ == "__main__":
    main()
