"""A keeper that kills itself at a chosen operation, for ``tests/fault/test_keeper.py``.

Started as ``python dying_keeper.py FOLDER PACKAGE DATA LISTENER``. The file FOLDER/die-at holds ``<n> before`` or
``<n> after``: the keeper kills itself with SIGKILL around its n-th operation that changes something outside itself
(spawn, write, unlink, wait). The file is removed at once, so only the first keeper dies. FOLDER/operations gets the
names of those that were reached.
"""

from __future__ import annotations

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

    def wrap(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*args: Any, **options: Any) -> Any:
            nonlocal reached
            reached += 1
            with (folder / "operations").open("a") as file:
                file.write(f"{name}\n")
            if reached == int(number) and moment == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = real(*args, **options)
            if reached == int(number):
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return operation

    for name in OPERATIONS:
        setattr(os, name, wrap(name, getattr(os, name)))


def main() -> None:
    folder, package, data, listener = sys.argv[1:5]
    sys.path.append(package)
    from paddleflow.runtimes.local import keeper

    if (Path(folder) / "die-at").exists():
        arm(Path(folder))
    keeper.main(data, int(listener))


if __name__ == "__main__":
    main()
