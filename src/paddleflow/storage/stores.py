"""A store for a storage row: the one place where a storage becomes something that can be read and written.

Everything above `storage` works on `objects.store.ObjectStore` and on keys; nobody else joins paths. The rule of `places` is
applied again each time that a store is opened: a link may have changed since the storage was made. Secrets are decrypted here and
nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from paddleflow.base.values import dataclass
from paddleflow.errors import Conflict, Forbidden, Invalid, NotFound, PaddleFlowError, TooLarge
from paddleflow.objects.links import LinkTarget, open_linked
from paddleflow.objects.local import LocalStore
from paddleflow.objects.store import ObjectStore, read_whole
from paddleflow.storage import secrets
from paddleflow.storage.model import LOCAL, Link, Place, Storage
from paddleflow.storage.places import check_folder
from paddleflow.store.encryption import Keyring

MOST_BYTES = 10 * 2**20  #: of a document that is read from a storage
_FAILED = "ReadYamlFileFailed"


@dataclass(frozen=True, slots=True)
class Source:
    """Everything that opening a storage takes, with its secrets: for a store, or for whoever mounts it."""

    url: str
    properties: Mapping[str, str]
    links: tuple[LinkTarget, ...] = ()

    def __repr__(self) -> str:
        return f"Source({self.url})"


@dataclass(frozen=True, slots=True)
class Stores:
    """Opens storages."""

    data: Path
    keyring: Keyring

    def open(self, storage: Storage) -> ObjectStore:
        """The files of a storage; the caller closes it. `Invalid` or `Forbidden` when it may not be used. Blocks on the disk."""
        if storage.local:
            folder = self._folder(storage.place, storage.user, storage.confined)
            return LocalStore(folder, name=f"fs[{storage.name}]")
        source = self.source(storage)
        return open_linked(source.url, source.properties, source.links)

    def source(self, storage: Storage) -> Source:
        """What a mount needs. `Unavailable` when this server cannot decrypt it."""
        return Source(
            self._url(storage.place, storage.user, storage.confined),
            self.properties(storage),
            tuple(
                LinkTarget(link.path, self._url(link.place, storage.user, link.confined), self.link_properties(link))
                for link in storage.links
            ),
        )

    def properties(self, storage: Storage) -> dict[str, str]:
        """All of them, the secrets too."""
        context = secrets.storage_context(storage.id)
        return {**storage.properties, **secrets.decrypt(self.keyring, context, storage.secrets)}

    def link_properties(self, link: Link) -> dict[str, str]:
        return {**link.properties, **secrets.decrypt(self.keyring, secrets.link_context(link.id), link.secrets)}

    def _url(self, place: Place, user: str, confined: bool) -> str:
        return f"file://{self._folder(place, user, confined)}" if place.fs_type == LOCAL else place.url

    def _folder(self, place: Place, user: str, confined: bool) -> Path:
        return check_folder(place.sub_path, data=self.data, user=user, confined=confined)

    def read_document(self, storage: Storage, path: str, *, most: int = MOST_BYTES) -> bytes:
        """The bytes of a document on a storage; `Invalid` or `Forbidden` in words when it cannot or may not be read."""
        what = f"file[{path[:200]}] of fs[{storage.name}]"
        parts = [part for part in path.split("/") if part not in ("", ".")]
        if not parts or ".." in parts or "\0" in path:
            raise Invalid(f"{what}: the path must name a file inside the storage, without ..", code=_FAILED)
        try:
            with closing(self.open(storage)) as store:
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


def key_of(path: str) -> str:
    """The key behind a path that a person wrote, relative to the storage; empty: its root. `Invalid` for one with ``..``."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in path:
        raise Invalid(f"path[{path[:200]}] must stay in its storage: it holds ..", code="InvalidArguments")
    return "/".join(parts)
