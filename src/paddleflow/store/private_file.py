"""Files that only their owner reads: keys, passwords, tokens. Called by `store.encryption` and by `server`."""

from __future__ import annotations

import os
from pathlib import Path


def write_private(path: Path, text: str, *, durable: bool = False) -> None:
    """A file that only its owner reads, whole or not at all; durable: a power cut does not take it back."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    new.replace(path)
    if not durable:
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
