"""Reading one file of a storage that a client named by its path: never anything outside the storage's folder.

A path is relative to the storage (a leading ``/`` means its root). ``..`` is refused in words; links are followed only as
long as they stay inside. What was really opened is looked at again, so a link that changes meanwhile gains nothing.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from paddleflow.errors import Forbidden, Invalid
from paddleflow.storage.model import Storage
from paddleflow.storage.places import check_folder

MOST_BYTES = 10 * 2**20  #: of a document that is read this way
_FAILED = "ReadYamlFileFailed"


def read_file(storage: Storage, path: str, *, data: Path, most: int = MOST_BYTES) -> bytes:
    """The bytes of a file; `Invalid` or `Forbidden` in words when it cannot or may not be read. Blocks on the disk."""
    folder = check_folder(storage.folder, data=data, user=storage.user, confined=storage.confined)
    parts = [part for part in path.split("/") if part not in ("", ".")]
    what = f"file[{path[:200]}] of fs[{storage.name}]"
    if not parts or ".." in parts or "\x00" in path:
        raise Invalid(f"{what}: the path must name a file inside the storage, without ..", code=_FAILED)
    try:
        opened = os.open(folder.joinpath(*parts), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        hint = "give its path from the storage's root, such as ./run.yaml" if error.errno == 2 else ""
        raise Invalid(f"{what}: {error.strerror}", code=_FAILED, hint=hint) from error
    try:
        real = Path(os.path.realpath(f"/proc/self/fd/{opened}"))
        if folder not in real.parents:
            raise Forbidden(f"{what} leads out of the storage", hint="copy the file into the storage")
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise Invalid(f"{what} is not a file", code=_FAILED)
        with open(opened, "rb", closefd=False) as file:
            content = file.read(most + 1)
    finally:
        os.close(opened)
    if len(content) > most:
        raise Invalid(f"{what} has more than {most} bytes, which is the most that is read", code=_FAILED)
    return content
