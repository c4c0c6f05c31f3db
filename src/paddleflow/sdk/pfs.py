"""Storages for everything that reads files by fsspec: ``pfs://storage/path`` in pandas, pyarrow, datasets of torch, zarr …

The bytes come through the server with the user's own token: no mount, no key of the store. An instance can be pickled, so that
workers of a data loader have it; ranges are fetched several at once. Needs ``pip install 'paddleflow[fsspec]'``; fsspec finds the
class by the package's entry point.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import IO, Any, ClassVar

from fsspec.spec import AbstractBufferedFile, AbstractFileSystem  # type: ignore[import-untyped]  # it has no types

from paddleflow.errors import Conflict, Forbidden, NotFound
from paddleflow.sdk.client import PaddleFlow, connect
from paddleflow.sdk.files import PART, File

AT_ONCE = 8  #: ranges that are fetched at the same time


class PfsFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """`storage/path` of one server. Options are those of `paddleflow.connect`; without any, the current context counts."""

    protocol: ClassVar[str] = "pfs"
    root_marker = ""

    def __init__(
        self, server: str | None = None, token: str | None = None, context: str | None = None, **options: Any
    ) -> None:
        super().__init__(server=server, token=token, context=context, **options)
        self._connection = (server, token, context)
        self._client: PaddleFlow | None = None

    @property
    def client(self) -> PaddleFlow:
        if self._client is None:
            server, token, context = self._connection
            self._client = connect(server, token=token, context=context)
        return self._client

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}

    @classmethod
    def _strip_protocol(cls, path: str | list[str]) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        return path.removeprefix("pfs://").strip("/")

    def _split(self, path: str) -> tuple[str, str]:
        storage, _, inside = self._strip_protocol(path).partition("/")
        if not storage:
            raise ValueError(f"{path!r} names no storage: write it as pfs://storage/path")
        return storage, inside

    def _shown(self, storage: str, file: File) -> dict[str, Any]:
        kind = {"folder": "directory", "file": "file"}.get(file.kind, "other")
        name = f"{storage}/{file.path}".rstrip("/")
        return {"name": name, "size": file.size, "type": kind, "mtime": file.modified_at, "tag": file.tag}

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        storage, inside = self._split(path)
        with _errors(path):
            return self._shown(storage, self.client.files.stat(storage, inside))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        if not self._strip_protocol(path):
            found = [{"name": each.name, "size": 0, "type": "directory"} for each in self.client.storages.list()]
        else:
            storage, inside = self._split(path)
            with _errors(path):
                found = [self._shown(storage, each) for each in self.client.files.list(storage, inside)]
        return found if detail else [each["name"] for each in found]

    def modified(self, path: str) -> Any:
        return datetime.fromtimestamp(self.info(path)["mtime"], UTC)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        storage, inside = self._split(path)
        offset = start or 0
        if offset < 0 or (end is not None and end < 0):
            size = self.info(path)["size"]
            offset = max(0, size + offset) if offset < 0 else offset
            end = size + end if end is not None and end < 0 else end
        with _errors(path):
            return self.client.files.read(
                storage, inside, offset=offset, size=-1 if end is None else max(0, end - offset)
            )

    def cat_ranges(
        self,
        paths: list[str],
        starts: int | Sequence[int | None],
        ends: int | Sequence[int | None],
        max_gap: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[Any]:
        if max_gap is not None:
            raise NotImplementedError("ranges are not joined here")
        firsts = [starts] * len(paths) if isinstance(starts, int) else list(starts)
        lasts = [ends] * len(paths) if isinstance(ends, int) else list(ends)
        if not len(paths) == len(firsts) == len(lasts):
            raise ValueError(f"{len(paths)} paths, {len(firsts)} starts and {len(lasts)} ends: they must be as many")

        def fetch(path: str, start: int | None, end: int | None) -> bytes | Exception:
            try:
                return self.cat_file(path, start, end)
            except Exception as error:
                if on_error == "return":
                    return error
                raise

        with ThreadPoolExecutor(AT_ONCE, "pfs") as pool:
            return list(pool.map(fetch, paths, firsts, lasts))

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        storage, inside = self._split(path)
        with _errors(path):
            self.client.files.write(storage, inside, bytes(value), if_absent=mode == "create")

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        self.makedirs(path, exist_ok=True)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        storage, inside = self._split(path)
        if inside:
            if not exist_ok and self.exists(path):
                raise FileExistsError(path)
            with _errors(path):
                self.client.files.make_folder(storage, inside)

    def rmdir(self, path: str) -> None:
        self._rm(path)

    def _rm(self, path: str) -> None:
        storage, inside = self._split(path)
        with _errors(path):
            self.client.files.remove(storage, inside)

    rm_file = _rm

    def rm(self, path: str | list[str], recursive: bool = False, maxdepth: int | None = None) -> None:
        for each in [path] if isinstance(path, str) else path:
            storage, inside = self._split(each)
            with _errors(each):
                self.client.files.remove(storage, inside, recursive=recursive)

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        with self._open(path2, "wb") as target, self._open(path1, "rb") as source:
            while piece := source.read(PART):
                target.write(piece)

    def _open(
        self, path: str, mode: str = "rb", block_size: Any = None, autocommit: bool = True, **options: Any
    ) -> Any:
        options.pop("cache_options", None)
        if mode == "rb":
            file = PfsFile(self, path, mode, block_size or PART, cache_type="readahead")
            if file.details["type"] == "directory":
                raise IsADirectoryError(21, "a folder", path)
            return file
        if mode in ("wb", "xb"):
            return _Upload(self, path, mode == "xb")
        raise NotImplementedError(f"mode {mode!r}: a file is read, or written whole")


class PfsFile(AbstractBufferedFile):  # type: ignore[misc]  # fsspec has no types
    """A file that is read; always the version that was opened."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        storage, inside = self.fs._split(self.path)
        with _errors(self.path):
            content: bytes = self.fs.client.files.read(
                storage, inside, offset=start, size=end - start, tag=self.details.get("tag", "")
            )
        return content


class _Upload:
    """A file that is written: it appears whole when it is closed without an error."""

    def __init__(self, fs: PfsFileSystem, path: str, exclusive: bool) -> None:
        self._fs, self._path, self._exclusive = fs, path, exclusive
        self._staged: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 closed with the file that it stands for
        self.closed = False
        self.mode = "wb"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._staged, name)

    def __enter__(self) -> _Upload:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.discard()
        self.close()

    def discard(self) -> None:
        self.closed = True
        self._staged.close()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        with self._staged, _errors(self._path):
            self._staged.seek(0)
            storage, inside = self._fs._split(self._path)
            self._fs.client.files.write(storage, inside, self._staged, if_absent=self._exclusive)  # type: ignore[arg-type]


class _errors:  # noqa: N801 reads as a statement
    """Our errors as those that programs of file systems know."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        match error:
            case NotFound():
                raise FileNotFoundError(2, error.message, self._path) from error
            case Forbidden():
                raise PermissionError(13, error.message, self._path) from error
            case Conflict(code="AlreadyExists"):
                raise FileExistsError(17, error.message, self._path) from error
            case Conflict():
                raise OSError(error.message) from error
            case _:
                return
