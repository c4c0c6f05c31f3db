"""A folder of HDFS as a store, with or without Kerberos; no Java on this machine.

A write goes to a hidden temporary file and takes its name by a rename, which HDFS does in one step. HDFS appends only and keeps
no metadata that the driver can reach. Creating a file costs a third of a second, because the driver waits for the data node's
report; many at once cost no more. Conditions on tags are checked before the rename, under a lock of this store
(`Capabilities.if_tag` is false: another process may come between).

Two things are the process's and not the connection's, because the driver and the Kerberos library read them from the
environment: the name of a user without Kerberos, and where the key servers of realms are. So all HDFS stores that are open at
one moment in a process ask in the name of one user (Kerberos: any number), and a realm has one set of key servers.
"""

from __future__ import annotations

import base64
import binascii
import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import BinaryIO, TypeVar

import hdfs_native
from hdfs_native import FileStatus, WriteOptions

from paddleflow.base.values import dataclass
from paddleflow.environment import replace_variable
from paddleflow.errors import Conflict, Forbidden, Invalid, NotFound, OverQuota, PaddleFlowError, Unavailable
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
    copy_through_this_machine,
    exists_already,
    is_below,
    not_a_file,
    not_a_folder,
    not_supported,
    refuse_metadata,
    shorten,
    stat_file,
)

_NAME_SERVICE = "pf"
_LOCKS = 64
_SETTINGS = {
    "dfs.client.failover.max.attempts": "2",
    "dfs.client.failover.sleep.base.millis": "100",
    "dfs.client.failover.sleep.max.millis": "1000",
}
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kerberos:
    """How a user proves who it is: a keytab, or else the ticket of the account that this process runs as."""

    principal: str = ""
    keytab: bytes = field(default=b"", repr=False)
    realm: str = ""
    key_server: str = ""  #: of the realm, host:port; empty: as the machine's krb5.conf says
    protection: str = ""  #: of data transfer, as the cluster has it: authentication, integrity or privacy


@dataclass(frozen=True, slots=True)
class HdfsCluster:
    """Where a folder is, and who asks."""

    name_nodes: tuple[str, ...]  #: host:port; several are one highly available name service
    folder: str = "/"
    user: str = ""  #: without Kerberos; empty: the account that this process runs as
    kerberos: Kerberos | None = None


class HdfsStore:
    """`ObjectStore` over a folder of HDFS."""

    def __init__(self, cluster: HdfsCluster) -> None:
        self.name = f"hdfs://{','.join(cluster.name_nodes)}/{cluster.folder.strip('/')}".rstrip("/")
        self.capabilities = Capabilities(atomic_rename=True, if_absent=True)
        self._root = "/" + cluster.folder.strip("/")
        self._publishing = [threading.Lock() for _ in range(_LOCKS)]
        self._identity = _Identity(cluster)
        try:
            self._client = hdfs_native.Client(
                *_address(cluster.name_nodes, cluster.kerberos),
                kerberos_principal=self._identity.principal,
                kerberos_keytab=self._identity.keytab,
                kerberos_cache=self._identity.cache,
            )
        except BaseException as error:
            self._identity.release()
            if isinstance(error, Exception):
                raise self._translated(error, "") from error
            raise

    def close(self) -> None:
        self._identity.release()

    def _do(self, call: Callable[[], T], key: str) -> T:
        try:
            return call()
        except PaddleFlowError:
            raise
        except Exception as error:  # the driver has no errors of its own
            raise self._translated(error, key) from error
        except BaseException as error:
            if type(error).__name__ != "PanicException":
                raise
            # A panic of the driver, which Python has beside KeyboardInterrupt: what a server answered may not end this process.
            raise Unavailable(f"{shorten(key)} in {self.name}: the driver gave up on an answer: {error}") from error

    # ---- looking ----

    def stat(self, key: str) -> Entry:
        folder, key = key.endswith("/"), check_folder_key(key)
        entry = _entry(key, self._do(lambda: self._client.get_file_info(self._path(key)), key))
        if folder and entry.kind is not Kind.FOLDER:
            raise absent(self.name, key)
        return entry

    def list_entries(self, folder: str = "", *, recursive: bool = False) -> Iterator[Entry]:
        folder = check_folder_key(folder)
        names = self._client.list_status(self._path(folder), recursive)
        above = self._path(folder).rstrip("/") + "/"
        while True:
            try:
                found = self._do(lambda: next(names, None), folder)
            except NotFound:
                return
            if found is None or not found.path.startswith(above):
                return  # a file answers with itself
            name = found.path.removeprefix(above)
            hidden = name.rpartition("/")[2].startswith(TEMPORARY) or not is_below(name, "")
            if hidden or (recursive and found.isdir):
                continue
            yield _entry(f"{folder}/{name}" if folder else name, found)

    # ---- reading ----

    def read(self, key: str, *, size: int, offset: int = 0, tag: str = "") -> bytes:
        check_key(key)
        check_range(offset, size)
        entry = stat_file(self, key)
        if tag and entry.tag != tag:
            raise changed(key)
        if size == 0 or offset >= entry.size:
            return b""

        def fetch() -> bytes:
            reader = self._client.read(self._path(key))
            if tag and self.stat(key).tag != tag:  # what was opened is what was asked for
                raise changed(key)
            return bytes(reader.read_range(offset, max(0, min(size, len(reader) - offset))))

        return self._do(fetch, key)

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
        temporary = self._path(f"{key.rpartition('/')[0]}/{TEMPORARY}{secrets.token_hex(8)}".lstrip("/"))
        try:
            self._do(lambda: self._store(temporary, content), key)
            return self._publish(temporary, key, if_absent, if_tag)
        except BaseException:
            with suppress(Exception):
                self._client.delete(temporary, False)
            raise

    def _store(self, path: str, content: bytes | BinaryIO) -> None:
        with self._client.create(path, WriteOptions(create_parent=True)) as file:
            if isinstance(content, bytes):
                file.write(content)
            else:
                while piece := content.read(CHUNK):
                    file.write(piece)

    def _publish(self, path: str, key: str, if_absent: bool, if_tag: str) -> Entry:
        """Give a file its name in one step, if the condition holds, with a tag that the old one has not."""
        with self._publishing[hash(key) % _LOCKS]:
            old = self._find(key)
            check_target(self.name, key, old, if_absent=if_absent, if_tag=if_tag)
            new = self._do(lambda: self._client.get_file_info(path), key)
            if old is not None and _tag(new) == old.tag:
                later = new.modification_time + 1
                self._do(lambda: self._client.set_times(path, later, later), key)
            self._do(lambda: self._client.rename(path, self._path(key), not if_absent), key)
            return self.stat(key)

    def _find(self, key: str) -> Entry | None:
        try:
            return self.stat(key)
        except NotFound:
            return None

    def remove(self, key: str) -> None:
        found = self._find(check_key(key))
        if found is not None:
            if found.kind is Kind.FOLDER:
                raise not_a_file(self.name, key)
            self._do(lambda: self._client.delete(self._path(key), False), key)

    def make_folder(self, key: str, *, metadata: Mapping[str, str] | None = None) -> None:
        key = check_key(key.removesuffix("/"))
        refuse_metadata(self.name, metadata)
        self._do(lambda: self._client.mkdirs(self._path(key), 0o755, True), key)

    def remove_folder(self, key: str) -> None:
        key = check_key(key.removesuffix("/"))
        found = self._find(key)
        if found is not None:
            if found.kind is not Kind.FOLDER:
                raise not_a_folder(self.name, key)
            self._do(lambda: self._client.delete(self._path(key), False), key)

    def copy(self, source: str, target: str) -> Entry:
        return copy_through_this_machine(self, source, target)

    def rename(self, source: str, target: str) -> Entry:
        check_key(target)
        stat_file(self, check_key(source))
        if above := target.rpartition("/")[0]:
            self.make_folder(above)
        return self._publish(self._path(source), target, False, "")

    def set_metadata(self, key: str, metadata: Mapping[str, str]) -> Entry:
        raise not_supported(self.name, "keep metadata")

    # ---- what all need ----

    def _path(self, key: str) -> str:
        return f"{self._root.rstrip('/')}/{key}" if key else self._root

    def _translated(self, error: Exception, key: str) -> PaddleFlowError:
        """The driver's errors are text; of a Java error its class says what happened."""
        what, text = f"{shorten(key)} in {self.name}", str(error)
        why = text.replace("\\n", "\n").split("\n", 1)[0][:300]
        known = text.split("\n", 1)[0]
        if isinstance(error, FileNotFoundError):
            if "Path is not a file" in known:
                return not_a_file(self.name, key)
            return absent(self.name, key)
        if isinstance(error, FileExistsError):
            if "is not a directory" in known or "is a directory" in known:
                return Conflict(f"{what}: {why}")
            return exists_already(self.name, key)
        for words, make in _MEANINGS:
            if any(word in known for word in words):
                return make(what, why)
        return Unavailable(f"{what} could not be used: {why}")


def _forbidden(what: str, why: str) -> PaddleFlowError:
    return Forbidden(f"{what} may not be used: {why}", hint="check its owner, group and mode")


def _bad_credentials(what: str, why: str) -> PaddleFlowError:
    hint = "see principal, keytab or ticket (klist), and kerberos.data.transfer.protection"
    return Forbidden(f"{what}: {why}", code=BAD_CREDENTIALS, hint=hint)


#: Which words in the text of a driver's error mean what; the first that fits counts.
_MEANINGS: tuple[tuple[tuple[str, ...], Callable[[str, str], PaddleFlowError]], ...] = (
    (("GSSAPI", "gssapi", "Kerberos", "SIMPLE authentication", "SASL", "Sasl", "sasl", "mechanism"), _bad_credentials),
    (("ParentNotDirectoryException",), lambda what, why: Conflict(f"part of {what} is a file, not a folder")),
    (("PathIsNotEmptyDirectoryException",), lambda what, why: Conflict(f"{what} is not empty", code="FolderNotEmpty")),
    (("InvalidPathException", "PathComponentTooLong"), lambda what, why: Invalid(f"{what} cannot be stored: {why}")),
    (("AccessControlException",), _forbidden),
    (
        ("RPC listener disconnected",),
        lambda what, why: Unavailable(f"{what}: the name node hangs up", hint="it may want Kerberos, or another port"),
    ),
    (
        ("QuotaExceededException",),
        lambda what, why: OverQuota(f"{what} cannot be written: {why}", hint="free some space"),
    ),
)


def _address(name_nodes: tuple[str, ...], kerberos: Kerberos | None) -> tuple[str, dict[str, str]]:
    settings = dict(_SETTINGS)
    if kerberos is not None:
        settings["hadoop.security.authentication"] = "kerberos"
        if kerberos.protection:
            settings["dfs.data.transfer.protection"] = kerberos.protection
    if len(name_nodes) == 1:
        return f"hdfs://{name_nodes[0]}", settings
    numbers = [f"nn{number}" for number in range(len(name_nodes))]
    settings[f"dfs.ha.namenodes.{_NAME_SERVICE}"] = ",".join(numbers)
    for number, address in zip(numbers, name_nodes, strict=True):
        settings[f"dfs.namenode.rpc-address.{_NAME_SERVICE}.{number}"] = address
    return f"hdfs://{_NAME_SERVICE}", settings


class _Identity:
    """In whose name a store asks: the part that is the process's, held while the store is open."""

    _lock = threading.Lock()
    _user = ""  #: of the stores without Kerberos that are open
    _users = 0  #: how many these are
    _before: str | None = None  #: the variable as it was
    _realms: dict[str, str] = {}  # noqa: RUF012 one for the process, as the variable is
    _realms_file: Path | None = None

    def __init__(self, cluster: HdfsCluster) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._held = False
        self.principal: str | None = None
        self.keytab: str | None = None
        self.cache: str | None = None
        if cluster.kerberos is not None:
            self._use_kerberos(cluster.kerberos)
        elif cluster.user:
            self._use_name(cluster.user)

    def _use_name(self, user: str) -> None:
        cls = type(self)
        with cls._lock:
            if cls._users and cls._user != user:
                message = f"this process asks HDFS in the name of {cls._user} just now, not of {user}"
                raise Unavailable(message, hint="try again when that has ended, or use Kerberos")
            if not cls._users:
                cls._before = replace_variable("HADOOP_USER_NAME", user)
            cls._user, cls._users, self._held = user, cls._users + 1, True

    def _use_kerberos(self, kerberos: Kerberos) -> None:
        if kerberos.realm and kerberos.key_server:
            self._add_realm(kerberos.realm, kerberos.key_server)
        if kerberos.keytab:
            self._folder = tempfile.TemporaryDirectory(prefix="pf-hdfs-")
            folder = Path(self._folder.name)  # made with mode 0700
            (folder / "keytab").write_bytes(kerberos.keytab)
            self.principal, self.keytab = kerberos.principal, str(folder / "keytab")
            self.cache = f"FILE:{folder / 'tickets'}"
        elif kerberos.principal:
            self.principal = kerberos.principal

    @classmethod
    def _add_realm(cls, realm: str, key_server: str) -> None:
        with cls._lock:
            if cls._realms.setdefault(realm, key_server) != key_server:
                known = cls._realms[realm]
                raise Invalid(f"the key server of realm {realm} is {known} in this process, not {shorten(key_server)}")
            if cls._realms_file is None:
                folder = Path(tempfile.mkdtemp(prefix="pf-krb5-"))
                cls._realms_file = folder / "krb5.conf"
                machine = replace_variable("KRB5_CONFIG", str(cls._realms_file)) or "/etc/krb5.conf"
                present = [path for path in machine.split(":") if Path(path).exists()]
                # What the machine says of a realm comes first.
                replace_variable("KRB5_CONFIG", ":".join([*present, str(cls._realms_file)]))
            lines = [f" {name} = {{\n  kdc = {server}\n }}" for name, server in cls._realms.items()]
            cls._realms_file.write_text("[realms]\n" + "\n".join(lines) + "\n")

    def release(self) -> None:
        cls = type(self)
        with cls._lock:
            if self._held:
                self._held = False
                cls._users -= 1
                if not cls._users:
                    replace_variable("HADOOP_USER_NAME", cls._before)
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None


def decode_keytab(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Invalid("kerberos.keytab.data is not base64", hint="base64 -w0 user.keytab") from error


def _entry(key: str, found: FileStatus) -> Entry:
    modified_at = found.modification_time / 1000
    if found.isdir:
        return Entry(key, Kind.FOLDER, modified_at=modified_at)
    return Entry(key, Kind.FILE, check_size(key, found.length), modified_at, _tag(found))


def _tag(found: FileStatus) -> str:
    return f"{found.length:x}-{found.modification_time:x}"
