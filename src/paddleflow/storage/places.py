"""Which places a storage may name.

The rule for type local: root may name any folder of this machine that exists, except ``/``, also in another user's name.
Everybody else may only name folders in their own area, ``<data>/storage/<user>``. Folders below ``<data>/storage`` are
made when they are missing. Links are followed before the rule is applied, and `check_folder` applies it again when the
storage is used: a link may have changed since.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from paddleflow.base.names import nearest
from paddleflow.errors import Forbidden, Invalid
from paddleflow.spec.faults import Faults
from paddleflow.storage.model import LATER, LOCAL, Place

_URL = "InvalidFileSystemParamsURL"
_EXAMPLE = "such as local:///data/set1"


def parse_url(url: str, faults: Faults) -> Place | None:
    """The place behind a url; None, and faults, for one that cannot be used. Pure.

    ``local://data/set1`` and ``local:///data/set1`` both name ``/data/set1``, as existing servers have it.
    """
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if not separator:
        faults.add("url", f"{_shown(url)} has no type, it must be type://place", _EXAMPLE, _URL)
    elif scheme in LATER:
        message = f"storage of type {scheme} is not in this release, which has type {LOCAL}"
        faults.add("url", message, f"{scheme} comes with the release of the file system", "FileTypeNotSupported")
    elif scheme != LOCAL:
        hint = nearest(scheme[:40], (LOCAL, *LATER))
        faults.add("url", f"type {_shown(scheme)} is not known", hint, _URL)
    elif fault := _path_fault(rest):
        faults.add("url", f"{_shown(url)} {fault}", _EXAMPLE, _URL)
    else:
        return Place(LOCAL, "", str(PurePosixPath("/" + rest.lstrip("/"))))
    return None


def _path_fault(path: str) -> str:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts:
        return "names no folder, or the root of the machine"
    if ".." in parts:
        return "holds .."
    if not path.isprintable():
        return "holds a character that cannot be printed"
    if any(len(part.encode()) > 255 for part in parts):
        return "holds a part of more than 255 bytes"
    return ""


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


def area(data: Path, user: str) -> Path:
    """The folder in which this user may name storages without asking root."""
    return data / "storage" / user


def check_folder(path: str, *, data: Path, user: str, confined: bool) -> Path:
    """The real folder behind a path that parsed. `Forbidden` or `Invalid` when it may not be used. Blocks on the disk.

    Call it when a storage is made or changed, and again when a job is about to use it.
    """
    try:
        real = Path(path).resolve()
        own = area(data, user).resolve()
    except (OSError, RuntimeError) as error:  # a circle of links
        raise _unusable(path, str(error)) from error
    if real == Path(real.root):
        raise Invalid(f"folder {path} is the root of the machine", code=_URL, hint="name a folder below it")
    if confined and real != own and own not in real.parents:
        raise Forbidden(
            f"user[{user}] may not make a storage of folder {path}" + (f" ({real})" if str(real) != path else ""),
            hint=f"name a folder in your own area, such as local://{own}/data, or ask root",
        )
    try:
        found = real.is_dir()
        other = not found and real.exists()
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    if other:
        raise _unusable(path, "is not a folder")
    if not found and (data / "storage").resolve() not in real.parents:
        raise _unusable(path, "does not exist on the server's machine", f"mkdir -p {path}")
    return real


def make_folder(real: Path) -> list[Path]:
    """Make a folder and the missing ones above it; what was made, innermost first. Blocks on the disk."""
    made: list[Path] = []
    missing = [folder for folder in (real, *real.parents) if not folder.exists()]
    for folder in reversed(missing):
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            continue  # somebody else made it meanwhile
        except OSError as error:
            unmake(made)
            raise _unusable(str(real), f"cannot be made: {error.strerror}") from error
        made.insert(0, folder)
    return made


def unmake(made: list[Path]) -> None:
    """Take folders away again that `make_folder` made, as far as they are still empty."""
    for folder in made:
        try:
            folder.rmdir()
        except OSError:
            return


def _unusable(path: str, why: str, hint: str = "") -> Invalid:
    return Invalid(f"folder {path}: {why}", code="ConnectivityFailed", hint=hint)
