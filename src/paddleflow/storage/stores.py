"""A store for a storage row: the one place where a storage becomes something that can be read and written.

Everything above `storage` works on `objects.store.ObjectStore` and on keys; nobody else joins paths. The rule of `places` is
applied again each time that a store is opened: a link may have changed since the storage was made.
"""

from __future__ import annotations

from pathlib import Path

from paddleflow.errors import Conflict, Forbidden, Invalid, NotFound, PaddleFlowError, TooLarge
from paddleflow.objects.local import LocalStore
from paddleflow.objects.store import ObjectStore, read_whole
from paddleflow.storage.model import Storage
from paddleflow.storage.places import check_folder

MOST_BYTES = 10 * 2**20  #: of a document that is read from a storage
_FAILED = "ReadYamlFileFailed"


def open_store(storage: Storage, *, data: Path) -> ObjectStore:
    """The files of a storage; the caller closes it. `Invalid` or `Forbidden` when it may not be used. Blocks on the disk."""
    folder = check_folder(storage.folder, data=data, user=storage.user, confined=storage.confined)
    return LocalStore(folder, name=f"fs[{storage.name}]")


def key_of(path: str) -> str:
    """The key behind a path that a person wrote, relative to the storage; empty: its root. `Invalid` for one with ``..``."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in path:
        raise Invalid(f"path[{path[:200]}] must stay in its storage: it holds ..", code="InvalidArguments")
    return "/".join(parts)


def read_document(storage: Storage, path: str, *, data: Path, most: int = MOST_BYTES) -> bytes:
    """The bytes of a document on a storage; `Invalid` or `Forbidden` in words when it cannot or may not be read."""
    what = f"file[{path[:200]}] of fs[{storage.name}]"
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts or ".." in parts or "\0" in path:
        raise Invalid(f"{what}: the path must name a file inside the storage, without ..", code=_FAILED)
    store = open_store(storage, data=data)
    try:
        return read_whole(store, "/".join(parts), most=most)
    except NotFound as error:
        hint = "give its path from the storage's root, such as ./run.yaml"
        raise Invalid(f"{what}: No such file or directory", code=_FAILED, hint=hint) from error
    except Conflict as error:
        raise Invalid(f"{what} is not a file", code=_FAILED) from error
    except TooLarge as error:
        raise Invalid(f"{what} has more than {most} bytes, which is the most that is read", code=_FAILED) from error
    except Forbidden as error:
        if "leads out" not in error.message:
            raise Invalid(f"{what}: {error.message}", code=_FAILED, hint=error.hint) from error
        raise Forbidden(f"{what} leads out of the storage", hint="copy the file into the storage") from error
    except PaddleFlowError as error:
        raise Invalid(f"{what}: {error.message}", code=_FAILED, hint=error.hint) from error
    finally:
        store.close()
