"""Which places a storage may name.

The rule for type local: root may name any folder of this machine that exists, except ``/``, also in another user's name.
Everybody else may only name folders in their own area, ``<data>/storage/<user>``. Folders below ``<data>/storage`` are
made when they are missing. Links are followed before the rule is applied, and `check_folder` applies it again when the
storage is used: a link may have changed since.

Some types are named by root only (`Scheme.root_only`). The servers of those that a client of the machine mounts (`cfs`, `glusterfs`,
`afs`) trust the machine and not a user, so whoever names one could see whatever is exported to it. The driver of `hdfs` trusts the
server (decision 0260).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from paddleflow.errors import Forbidden, Invalid
from paddleflow.objects import urls
from paddleflow.spec.faults import Faults
from paddleflow.storage.model import LOCAL, Place

AREAS = "storage"  #: folder of the data folder, by user
_URL = "InvalidFileSystemParamsURL"
_EXAMPLE = "such as local:///data/set1"


def parse_url(url: str, properties: Mapping[str, str], faults: Faults) -> Place | None:
    """The place behind a url; None, and faults, for one that cannot be used. Pure.

    ``local://data/set1`` and ``local:///data/set1`` both name ``/data/set1``, as existing servers have it.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        faults.add("url", f"{_shown(url)} has no type, it must be type://place", _EXAMPLE, _URL)
    elif scheme.lower() in (LOCAL, "file"):
        if fault := _path_fault(rest):
            faults.add("url", f"{_shown(url)} {fault}", _EXAMPLE, _URL)
        else:
            return Place(LOCAL, "", str(PurePosixPath("/" + rest.lstrip("/"))))
    elif scheme.lower() == "pfs":
        faults.add("url", f"{_shown(url)} is a storage already", "name the store that it lies in", _URL)
    elif not url.isprintable():
        faults.add("url", f"{_shown(url)} holds a character that cannot be printed", _EXAMPLE, _URL)
    else:
        try:
            parsed = urls.parse_url(url)
        except Invalid as error:
            faults.add("url", error.message, error.hint, error.code)
        else:
            address, path = urls.SCHEMES[parsed.scheme].shown(parsed, properties)
            return Place(parsed.scheme, address, path, url)
    return None


def check_right(place: Place, *, user: str, confined: bool) -> None:
    """`Forbidden` for a store that only root may name. Pure."""
    scheme = urls.SCHEMES.get(place.fs_type)
    if confined and scheme is not None and (why := scheme.root_only):
        raise Forbidden(
            f"user[{user}] may not make a storage of type {place.fs_type}: {why}",
            hint=f"ask root, who can create it for you: paddleflow fs create NAME {place.url} -u {user}",
        )


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
    return data / AREAS / user


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
        raise Invalid(f"folder {path} is the root of the machine", code=_URL, hint="choose a folder below it")
    if confined and real != own and own not in real.parents:
        raise Forbidden(
            f"user[{user}] may not make a storage of folder {path}" + (f" ({real})" if str(real) != path else ""),
            hint=f"choose a folder in your own area, such as local://{own}/data, or ask root",
        )
    try:
        found = real.is_dir()
        other = not found and real.exists()
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    if other:
        raise _unusable(path, "is not a folder")
    if not found and (data / AREAS).resolve() not in real.parents:
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
