"""A folder of an SFTP server as a store.

The calls of `ObjectStore` are synchronous; the connection lives on an event loop in a thread of the store. All calls share one
connection, on which their requests are pipelined, and a lost one is made anew by the next call: what was under way then fails
with `Unavailable`. The server must be known by its host key before anything is sent to it.

What the protocol cannot do shapes three rules. It has no attributes for metadata: there is none. Its times are whole seconds:
a file that is replaced within a second gets a modification time one second after that of the old one, so that its tag
changes. It has no condition on content: two processes that write with the same tag at the same moment may both succeed
(`Capabilities.if_tag` is false); threads of one store are told apart. Links are followed as long as they stay below the folder.
"""

from __future__ import annotations

import asyncio
import secrets
import stat
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import asyncssh
from asyncssh import SFTPAttrs, SFTPClient, SFTPClientFile, SFTPError

from paddleflow.base.values import dataclass
from paddleflow.errors import Conflict, Forbidden, Invalid, NotFound, OverQuota, PaddleFlowError, Unavailable
from paddleflow.objects.addresses import refuse_metadata_service
from paddleflow.objects.store import (
    BAD_CREDENTIALS,
    CHUNK,
    TEMPORARY,
    Capabilities,
    Entry,
    Kind,
    absent,
    changed,
    check_folder_key,
    check_key,
    check_range,
    check_size,
    check_target,
    exists_already,
    is_below,
    not_a_file,
    not_a_folder,
    not_empty,
    not_supported,
    refuse_metadata,
    shorten,
    stat_file,
)

PAGE = 1_000  #: entries of a folder that are fetched at once
MOST_FOLDERS = 100_000  #: that wait to be listed: a server may say that each folder holds others
CONNECT_SECONDS = 10.0
_LOCKS = 64
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SftpServer:
    """Where a folder is, and who asks. Keys and agents of the account that this process runs as are never used."""

    host: str
    port: int = 22
    folder: str = "/"
    user: str = ""
    password: str = field(default="", repr=False)
    private_key: str = field(default="", repr=False)
    passphrase: str = field(default="", repr=False)
    host_key: str = ""  #: fingerprints (SHA256:…) or public keys, separated by commas; empty: the known_hosts files
    verify: bool = True  #: of the host key


class _Client(asyncssh.SSHClient):
    """Decides on host keys that no known_hosts file names, and remembers what was seen."""

    def __init__(self, allowed: frozenset[str]) -> None:
        self.allowed = allowed
        self.seen = ""

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        """Before anything is said: a name may lead elsewhere than when the storage was made."""
        refuse_metadata_service(str(conn.get_extra_info("peername")[0]))

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.seen = key.get_fingerprint()
        return self.seen in self.allowed or key.export_public_key().decode().split()[1] in self.allowed


class SftpStore:
    """`ObjectStore` over a folder of an SFTP server."""

    def __init__(self, server: SftpServer, *, seconds: float = 60.0) -> None:
        port = "" if server.port == 22 else f":{server.port}"
        self.name = f"sftp://{server.host}{port}/{server.folder.strip('/')}".rstrip("/")
        self.capabilities = Capabilities(copy=True, atomic_rename=True, if_absent=True)
        self._server, self._seconds = server, seconds
        self._root = "/" + server.folder.strip("/")
        self._real_root = self._root
        self._key = _read_key(server)
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._connection: asyncssh.SSHClientConnection | None = None
        self._client: SFTPClient | None = None
        self._connecting = asyncio.Lock()
        self._publishing = [asyncio.Lock() for _ in range(_LOCKS)]

    # ---- the loop and the connection ----

    def _do(self, work: Coroutine[Any, Any, T], key: str) -> T:
        """Run something on the loop and wait for it; errors of the driver become ours."""
        with self._lock:
            if self._closed:
                work.close()
                raise Unavailable(f"{self.name} was closed")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_serve, args=(self._loop,), name="sftp", daemon=True)
                self._thread.start()
            loop = self._loop
        try:
            return asyncio.run_coroutine_threadsafe(self._bounded(work), loop).result()
        except PaddleFlowError:
            raise
        except (SFTPError, asyncssh.Error, OSError, TimeoutError) as error:
            raise self._translated(error, key) from error
        except CancelledError as error:
            raise Unavailable(f"{self.name} was closed") from error

    async def _bounded(self, work: Coroutine[Any, Any, T]) -> T:
        async with asyncio.timeout(self._seconds):
            return await work

    async def _sftp(self) -> SFTPClient:
        async with self._connecting:
            if self._client is not None and self._connection is not None and not self._connection.is_closed():
                return self._client
            self._connection, self._client = None, None
            connection = await self._connect()
            try:
                client = await connection.start_sftp_client(path_errors="surrogateescape")
                with suppress(SFTPError):  # an absent folder: whoever uses it says so
                    self._real_root = str(await client.realpath(self._root))
            except BaseException:
                connection.abort()
                raise
            self._connection, self._client = connection, client
            return client

    async def _connect(self) -> asyncssh.SSHClientConnection:
        server = self._server
        words = frozenset(word for part in server.host_key.split(",") for word in part.split())
        client = _Client(words)
        known: Any = [str(path) for path in _known_hosts() if path.is_file()]
        try:
            connection, _ = await asyncssh.create_connection(
                lambda: client,
                server.host,
                server.port,
                username=server.user,
                password=server.password or None,
                client_keys=[self._key] if self._key else None,
                agent_path=None,
                config=None,
                known_hosts=(known if not server.host_key and known else b"") if server.verify else None,
                preferred_auth="publickey" if self._key else "password,keyboard-interactive",
                connect_timeout=CONNECT_SECONDS,
                login_timeout=CONNECT_SECONDS,
                keepalive_interval=15,
                keepalive_count_max=4,
            )
        except asyncssh.HostKeyNotVerifiable as error:
            what = f"the host key of {server.host} port {server.port}, {client.seen or 'of an unknown type'},"
            why = "is not the one that was given" if server.host_key else "is not known"
            hint = f"if it is right, give it as property hostKey={client.seen}, or add it to known_hosts"
            raise Forbidden(f"{what} {why}", code=BAD_CREDENTIALS, hint=hint) from error
        except asyncssh.PermissionDenied as error:
            way = "the key" if self._key else "the password"
            message = f"{server.host} port {server.port} does not let user {shorten(server.user)} in with {way}"
            hint = "see user, password and privateKey"
            raise Forbidden(message, code=BAD_CREDENTIALS, hint=hint) from error
        return connection

    def close(self) -> None:
        with self._lock:
            loop, self._loop, self._closed = self._loop, None, True
        if loop is not None:
            asyncio.run_coroutine_threadsafe(self._close(), loop).result()
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()

    async def _close(self) -> None:
        if self._connection is not None:
            self._connection.abort()
            with suppress(asyncssh.Error, OSError, TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._connection.wait_closed()
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest, timeout=1.0)

    # ---- looking ----

    def stat(self, key: str) -> Entry:
        folder, key = key.endswith("/"), check_folder_key(key)
        entry = self._do(self._stat(key), key)
        if folder and entry.kind is not Kind.FOLDER:
            raise absent(self.name, key)
        return entry

    async def _stat(self, key: str) -> Entry:
        sftp = await self._sftp()
        path = self._path(key)
        attributes, real = await asyncio.gather(sftp.stat(path), sftp.realpath(path))
        self._check_beneath(key, str(real))
        return _entry(key, attributes)

    def list_entries(self, folder: str = "", *, recursive: bool = False) -> Iterator[Entry]:
        pending = [check_folder_key(folder)]
        while pending:
            current = pending.pop()
            try:
                names = self._do(self._scan(current), current)
            except NotFound:
                continue
            more = True
            try:
                while more:
                    page, more = self._do(self._page(current, names), current)
                    for entry, link in page:
                        if not recursive or entry.kind is not Kind.FOLDER:
                            yield entry
                        elif not link:
                            pending.append(entry.key)
                    if len(pending) > MOST_FOLDERS:
                        raise Unavailable(f"{self.name} has more than {MOST_FOLDERS:,} folders beside each other")
            except NotFound:
                continue  # removed, or never there
            finally:
                with suppress(PaddleFlowError):
                    self._do(_finish(names), current)

    async def _scan(self, folder: str) -> AsyncIterator[asyncssh.SFTPName]:
        sftp = await self._sftp()
        path = self._path(folder)
        real = str(await sftp.realpath(path))
        self._check_beneath(folder, real)
        return sftp.scandir(path)

    async def _page(
        self, folder: str, names: AsyncIterator[asyncssh.SFTPName]
    ) -> tuple[list[tuple[Entry, bool]], bool]:
        """The next entries of a folder, each with whether it is a link; and whether there may be more."""
        page: list[tuple[Entry, bool]] = []
        for _ in range(PAGE):
            try:
                each = await anext(names)
            except StopAsyncIteration:
                return page, False
            name = str(each.filename)
            if not is_below(name, "") or "/" in name or name.startswith(TEMPORARY):
                continue
            key = f"{folder}/{name}" if folder else name
            if each.attrs.permissions is not None and stat.S_ISLNK(each.attrs.permissions):
                page.append((await self._stat_link(key), True))
            else:
                page.append((_entry(key, each.attrs), False))
        return page, True

    async def _stat_link(self, key: str) -> Entry:
        try:
            return await self._stat(key)
        except (SFTPError, PaddleFlowError):
            return Entry(key, Kind.OTHER)  # it leads nowhere, out, or round in circles

    # ---- reading ----

    def read(self, key: str, *, size: int, offset: int = 0, tag: str = "") -> bytes:
        check_key(key)
        check_range(offset, size)
        return self._do(self._read(key, size, offset, tag), key)

    async def _read(self, key: str, size: int, offset: int, tag: str) -> bytes:
        entry = await self._stat(key)  # before it is opened: the server would wait at a FIFO
        if entry.kind is not Kind.FILE:
            raise not_a_file(self.name, key, entry.kind)
        if not tag and (size == 0 or offset >= entry.size):
            return b""
        sftp = await self._sftp()
        async with sftp.open(self._path(key), "rb") as file:
            content = await file.read(size, offset) if size else b""
            if tag and _tag(await file.stat()) != tag:  # after reading: a change while reading counts
                raise changed(key)
        return bytes(content) if isinstance(content, bytes) else content.encode()

    # ---- writing ----

    def write(
        self,
        key: str,
        content: bytes | BinaryIO,
        *,
        metadata: Mapping[str, str] | None = None,
        if_absent: bool = False,
        if_tag: str = "",
    ) -> Entry:
        check_key(key)
        refuse_metadata(self.name, metadata)
        folder = key.rpartition("/")[0]
        temporary = f"{self._path(folder)}/{TEMPORARY}{secrets.token_hex(8)}"
        file = self._do(self._create(folder, temporary), key)
        try:
            at = 0
            for piece in _pieces(content):
                self._do(self._write_at(file, piece, at, key), key)
                at += len(piece)
            return self._do(self._publish(file, temporary, key, if_absent, if_tag), key)
        except BaseException:
            with suppress(PaddleFlowError):
                self._do(self._discard(file, temporary), key)
            raise

    async def _create(self, folder: str, temporary: str) -> SFTPClientFile:
        sftp = await self._sftp()
        try:
            real = str(await sftp.realpath(self._path(folder)))
            self._check_beneath(folder, real)
            return await sftp.open(temporary, "xb")
        except (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath):
            await self._make_folders(folder)
            return await sftp.open(temporary, "xb")

    async def _write_at(self, file: SFTPClientFile, piece: bytes, offset: int, key: str) -> None:
        """The protocol has no word for a full disk: where the server tells how much is free, it is asked."""
        try:
            if piece:
                await file.write(piece, offset)
        except asyncssh.SFTPFailure as error:
            with suppress(SFTPError):
                found = await file.statvfs()
                left = found.bavail * found.frsize
                if left < len(piece):
                    message = f"{shorten(key)} in {self.name} cannot be written: {left} bytes are left"
                    raise OverQuota(message, hint="free some space") from error
            raise

    async def _discard(self, file: SFTPClientFile, temporary: str) -> None:
        with suppress(SFTPError):
            await file.close()
        with suppress(SFTPError):
            await (await self._sftp()).remove(temporary)

    async def _publish(self, file: SFTPClientFile, temporary: str, key: str, if_absent: bool, if_tag: str) -> Entry:
        """Give the temporary file its name in one step, if the condition holds, with a tag that the old one has not."""
        with suppress(asyncssh.SFTPOpUnsupported):
            await file.fsync()
        async with self._publishing[hash(key) % _LOCKS]:
            old = await self._stat_if_there(key)
            check_target(self.name, key, old, if_absent=if_absent, if_tag=if_tag)
            now = int(time.time())
            new = await file.stat()
            if old is not None:
                now = max(now, int(old.modified_at) + 1)
            if old is not None or new.mtime is None:
                await file.utime((now, now))
                new = await file.stat()
            await file.close()
            await self._rename(temporary, key, if_absent)
            return _entry(key, new)

    async def _rename(self, path: str, key: str, exclusively: bool) -> None:
        sftp = await self._sftp()
        target = self._path(key)
        if not exclusively:
            try:
                await sftp.posix_rename(path, target)
                return
            except asyncssh.SFTPOpUnsupported:
                pass  # a server that knows the plain way only, which never replaces
        try:
            await sftp.rename(path, target)
        except asyncssh.SFTPFailure as error:
            if await self._stat_if_there(key) is None:
                raise
            if exclusively:
                raise exists_already(self.name, key) from error
            raise not_supported(self.name, "replace a file: its server has no posix-rename@openssh.com") from error

    async def _stat_if_there(self, key: str) -> Entry | None:
        try:
            return await self._stat(key)
        except (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath):
            return None

    def remove(self, key: str) -> None:
        self._do(self._remove(check_key(key)), key)

    async def _remove(self, key: str) -> None:
        sftp = await self._sftp()
        await self._check_parent(key)
        try:
            await sftp.remove(self._path(key))
        except (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath):
            return
        except SFTPError:
            found = await sftp.lstat(self._path(key))
            if found.permissions is not None and stat.S_ISDIR(found.permissions):
                raise not_a_file(self.name, key) from None
            raise

    async def _check_parent(self, key: str) -> None:
        folder = key.rpartition("/")[0]
        with suppress(asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath):
            self._check_beneath(folder, str(await (await self._sftp()).realpath(self._path(folder))))

    def make_folder(self, key: str, *, metadata: Mapping[str, str] | None = None) -> None:
        key = check_key(key.removesuffix("/"))
        refuse_metadata(self.name, metadata)
        self._do(self._make_folders(key), key)

    async def _make_folders(self, key: str) -> None:
        sftp = await self._sftp()
        parts = [part for part in self._root.split("/") if part] if not await sftp.exists(self._root) else []
        for count in range(1, len(parts) + 1):
            await self._make_folder("/" + "/".join(parts[:count]), key)
        parts = key.split("/") if key else []
        for count in range(1, len(parts) + 1):
            await self._make_folder(self._path("/".join(parts[:count])), key)
        self._check_beneath(key, str(await sftp.realpath(self._path(key))))

    async def _make_folder(self, path: str, key: str) -> None:
        sftp = await self._sftp()
        try:
            await sftp.mkdir(path)
        except SFTPError as error:
            found = None
            with suppress(SFTPError):
                found = await sftp.stat(path)
            if found is None or found.permissions is None:
                raise
            if not stat.S_ISDIR(found.permissions):
                raise Conflict(f"part of {shorten(key)} in {self.name} is a file, not a folder") from error

    def remove_folder(self, key: str) -> None:
        key = check_key(key.removesuffix("/"))
        self._do(self._remove_folder(key), key)

    async def _remove_folder(self, key: str) -> None:
        sftp = await self._sftp()
        await self._check_parent(key)
        try:
            await sftp.rmdir(self._path(key))
        except (asyncssh.SFTPNoSuchFile, asyncssh.SFTPNoSuchPath):
            found = await self._stat_if_there(key)
            if found is not None and found.kind is not Kind.FOLDER:
                raise not_a_folder(self.name, key) from None
        except SFTPError as error:
            async for each in sftp.scandir(self._path(key)):
                if each.filename not in (".", ".."):
                    raise not_empty(self.name, key) from error
            raise

    def copy(self, source: str, target: str) -> Entry:
        check_key(target)
        entry = stat_file(self, check_key(source))
        folder = target.rpartition("/")[0]
        temporary = f"{self._path(folder)}/{TEMPORARY}{secrets.token_hex(8)}"
        file = self._do(self._create(folder, temporary), target)
        try:
            if not self._do(self._copy_in_server(source, file), source):
                for offset in range(0, entry.size, CHUNK):
                    piece = self.read(source, size=CHUNK, offset=offset, tag=entry.tag)
                    self._do(self._write_at(file, piece, offset, target), target)
            return self._do(self._publish(file, temporary, target, False, ""), target)
        except BaseException:
            with suppress(PaddleFlowError):
                self._do(self._discard(file, temporary), target)
            raise

    async def _copy_in_server(self, source: str, target: SFTPClientFile) -> bool:
        sftp = await self._sftp()
        if not sftp.supports_remote_copy:
            return False
        async with sftp.open(self._path(source), "rb") as file:
            await sftp.remote_copy(file, target)
        return True

    def rename(self, source: str, target: str) -> Entry:
        check_key(target)
        stat_file(self, check_key(source))
        return self._do(self._move(source, target), source)

    async def _move(self, source: str, target: str) -> Entry:
        await self._check_parent(source)
        await self._make_folders(target.rpartition("/")[0])
        async with self._publishing[hash(target) % _LOCKS]:
            old, new = await self._stat_if_there(target), await self._stat(source)
            check_target(self.name, target, old, if_absent=False, if_tag="")
            if old is not None and old.tag == new.tag:
                later = int(old.modified_at) + 1
                await (await self._sftp()).utime(self._path(source), (later, later))
            await self._rename(self._path(source), target, False)
        return await self._stat(target)

    def set_metadata(self, key: str, metadata: Mapping[str, str]) -> Entry:
        raise not_supported(self.name, "keep metadata")

    # ---- what all need ----

    def _path(self, key: str) -> str:
        return f"{self._root.rstrip('/')}/{key}" if key else self._root

    def _check_beneath(self, key: str, real: str) -> None:
        if real != self._real_root and not real.startswith(self._real_root.rstrip("/") + "/"):
            hint = "copy the file into the store"
            raise Forbidden(f"{shorten(key)} in {self.name} leads out of the store through a link", hint=hint)

    def _translated(self, error: Exception, key: str) -> PaddleFlowError:
        what, why = f"{shorten(key)} in {self.name}", str(error) or type(error).__name__
        match error:
            case asyncssh.SFTPNoSuchFile() | asyncssh.SFTPNoSuchPath() | asyncssh.SFTPNotADirectory():
                return absent(self.name, key)
            case asyncssh.SFTPPermissionDenied() | asyncssh.SFTPWriteProtect():
                return Forbidden(
                    f"{what} may not be used by {self._server.user}: {why}", hint="check its owner and mode"
                )
            case asyncssh.SFTPNoSpaceOnFilesystem() | asyncssh.SFTPQuotaExceeded():
                return OverQuota(f"{what} cannot be written: {why}", hint="free some space")
            case asyncssh.SFTPInvalidFilename():
                return Invalid(f"{what} cannot be stored: {why}")
            case asyncssh.SFTPOpUnsupported():
                return not_supported(self.name, f"do this with {shorten(key)}: {why}")
            case TimeoutError():
                return Unavailable(f"{what}: no answer in time")
            case OSError():
                message = f"no connection to {self._server.host} port {self._server.port}: {error.strerror or why}"
                return Unavailable(message)
            case asyncssh.ChannelOpenError():
                return Unavailable(
                    f"{self._server.host} opens no SFTP session: {why}",
                    hint="check the line Subsystem sftp of its sshd_config",
                )
            case _:
                return Unavailable(f"{what} could not be used: {why}")


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def _known_hosts() -> list[Path]:
    return [Path("~/.ssh/known_hosts").expanduser(), Path("/etc/ssh/ssh_known_hosts")]


def _read_key(server: SftpServer) -> asyncssh.SSHKey | None:
    if not server.user:
        raise Invalid("the property user is required for SFTP")
    if not server.private_key:
        if not server.password:
            raise Invalid(f"neither a password nor a privateKey is given for user {shorten(server.user)}")
        return None
    try:
        return asyncssh.import_private_key(server.private_key, server.passphrase or None)
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
        hint = "give the text of the file, such as ~/.ssh/id_ed25519, and its passphrase if it has one"
        raise Invalid(f"privateKey cannot be read: {error}", hint=hint) from error


def _entry(key: str, found: SFTPAttrs) -> Entry:
    mode, modified_at = found.permissions or 0, float(found.mtime or 0)
    if stat.S_ISDIR(mode):
        return Entry(key, Kind.FOLDER, modified_at=modified_at)
    if not stat.S_ISREG(mode):
        return Entry(key, Kind.OTHER, modified_at=modified_at)
    return Entry(key, Kind.FILE, check_size(key, found.size or 0), modified_at, _tag(found))


def _tag(found: SFTPAttrs) -> str:
    return f"{found.size or 0:x}-{found.mtime or 0:x}"


def _pieces(content: bytes | BinaryIO) -> Iterator[bytes]:
    if isinstance(content, bytes):
        yield content
    else:
        while piece := content.read(CHUNK):
            yield piece


async def _finish(names: AsyncIterator[Any]) -> None:
    closing = getattr(names, "aclose", None)
    if closing is not None:
        await closing()
