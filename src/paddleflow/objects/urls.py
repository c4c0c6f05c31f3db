"""A store from its URL and properties: the one place that knows which scheme is which class, and what each can be told.

`SCHEMES` is the table of all that is known: the commands, the routes that make storages and the reference page read it. The
drivers of some stores come with the extra ``stores``. Whatever speaks with a network is imported when such a store is opened: this
table is read by every server and by many commands.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from paddleflow.base.names import nearest
from paddleflow.base.values import dataclass
from paddleflow.errors import Fault, Invalid, Unavailable
from paddleflow.objects.local import LocalStore
from paddleflow.objects.memory import MemoryStore
from paddleflow.objects.native import (
    NFS_SECURITY,
    NFS_VERSIONS,
    PROGRAMS,
    NativeMount,
    mount_afs,
    mount_glusterfs,
    mount_nfs,
    open_mount,
)
from paddleflow.objects.store import NOT_SUPPORTED, ObjectStore, shorten

if TYPE_CHECKING:
    from paddleflow.objects.s3 import Bucket

INVALID_URL = "InvalidFileSystemParamsURL"
INVALID_PROPERTIES = "InvalidFileSystemParamsProperties"
NO_PROPERTIES: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Property:
    """Something that a URL does not say."""

    name: str
    meaning: str
    secret: bool = False  #: never shown again
    fault: Callable[[str], str] = field(
        default=lambda value: ""
    )  #: what is wrong with a value, in words; empty: nothing
    lines: bool = False  #: it is a text of several lines; others become part of requests, and hold no control character


@dataclass(frozen=True, slots=True)
class Url:
    """A URL that was looked at: ``scheme://authority/path``."""

    text: str
    scheme: str
    authority: str
    path: str  #: without slashes at its ends

    @property
    def host(self) -> str:
        return self.authority.rpartition(":")[0].strip("[]") if self._has_port() else self.authority.strip("[]")

    def port(self, default: int) -> int:
        return int(self.authority.rpartition(":")[2]) if self._has_port() else default

    def _has_port(self) -> bool:
        return bool(re.fullmatch(r"(\[.*\]|[^:]*):\d{1,5}", self.authority))


Properties = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Scheme:
    """A type of store."""

    name: str
    form: str  #: how its URLs look
    meaning: str
    open: Callable[[Url, Properties], ObjectStore]
    properties: tuple[Property, ...] = ()
    #: Where its servers listen; empty for one without a network.
    addresses: Callable[[Url, Properties], list[tuple[str, int]]] = field(default=lambda url, properties: [])
    #: How a client of the machine mounts it; None: this program speaks with its servers itself.
    native: Callable[[Url, Properties, bool], NativeMount] | None = None
    root_only: str = ""  #: why only root may make a storage of it; empty: everybody may
    #: Which server and which place on it people are shown.
    shown: Callable[[Url, Properties], tuple[str, str]] = field(
        default=lambda url, properties: (properties.get("endpoint") or url.authority, f"/{url.path}")
    )
    driver: str = ""  #: the module that is imported when such a store is opened


def open_store(url: str, properties: Properties = NO_PROPERTIES) -> ObjectStore:
    """The store that a URL names. `Invalid` with every fault of URL and properties; nothing is asked of a network yet."""
    parsed = parse_url(url)
    check_properties(parsed.scheme, properties)
    return SCHEMES[parsed.scheme].open(parsed, properties)


def load_driver(url: str) -> None:
    """Import what stores of this type need: who is forked afterwards has it as it is now, whatever is installed meanwhile."""
    scheme = SCHEMES.get(url.partition("://")[0].lower())
    if scheme is not None and scheme.driver:
        with suppress(ImportError):  # who opens such a store is told
            importlib.import_module(scheme.driver)


def open_native_folder(url: str, properties: Properties, *, wait: bool, programs: str = PROGRAMS) -> int | None:
    """A descriptor of a folder that a client of the machine mounts, until it is closed; None for another type.

    `wait`: calls wait for a server that is away, where the client can do that. `programs`: where clients are.
    """
    parsed = parse_url(url)
    check_properties(parsed.scheme, properties)
    native = SCHEMES[parsed.scheme].native
    return None if native is None else open_mount(native(parsed, properties, wait), programs=programs)


def parse_url(url: str) -> Url:
    """The parts of a URL whose scheme is known."""
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()
    if not separator:
        hint = "write it as file:///data/team or s3://bucket/prefix"
        raise Invalid(f"{shorten(url)} is not the URL of a store", code=INVALID_URL, hint=hint)
    if scheme not in SCHEMES:
        raise Invalid(
            f"{shorten(url)}: no store of type {shorten(scheme)}", code=INVALID_URL, hint=nearest(scheme, SCHEMES)
        )
    if scheme in ("file", "local"):
        return Url(url, scheme, "", unquote(rest).strip("/"))
    authority, _, path = rest.partition("/")
    if not authority:
        raise Invalid(f"{shorten(url)} names no server", code=INVALID_URL, hint=f"write it as {SCHEMES[scheme].form}")
    if "@" in authority:
        hint = "give user and password as properties: a URL is shown to everybody"
        raise Invalid(f"a URL of type {scheme} holds no user", code=INVALID_URL, hint=hint)
    return Url(url, scheme, authority, path.strip("/"))


def check_properties(scheme: str, properties: Properties) -> None:
    """Refuse properties that this type of store does not have, or whose values cannot be; all faults at once."""
    known = {each.name: each for each in SCHEMES[scheme].properties}
    faults = []
    for name, value in properties.items():
        if name not in known:
            where, what = "properties", f"a store of type {scheme} has no property {shorten(name)}"
            faults.append(Fault(where, what, nearest(name, known, none="it has none: leave properties out")))
        elif fault := known[name].fault(value) or _control_fault(known[name], value):
            faults.append(
                Fault(f"properties.{name}", f"{'a secret' if known[name].secret else shorten(value)} {fault}")
            )
    if faults:
        raise Invalid.of(faults, code=INVALID_PROPERTIES)


def _control_fault(known: Property, value: str) -> str:
    found = None if known.lines else next((each for each in value if not each.isprintable()), None)
    return "" if found is None else f"holds a control character, {found!r}"


def secret_names(scheme: str) -> frozenset[str]:
    """The properties of a type that must be encrypted at rest and never be shown."""
    return frozenset(each.name for each in SCHEMES[scheme].properties if each.secret)


def is_true(value: str) -> bool:
    return value.lower() in ("true", "1", "yes")


def _flag(value: str) -> str:
    return "" if value.lower() in ("true", "false", "1", "0", "yes", "no", "") else "is neither true nor false"


def _one_of(known: Sequence[str]) -> Callable[[str], str]:
    return lambda value: "" if value in known else f"is none of {', '.join(known)}"


def _kubernetes_name(value: str) -> str:
    fits = re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", value)
    return "" if fits else "is not a valid Kubernetes name: lower-case letters, digits and dashes"


def _mode(value: str) -> str:
    return "" if re.fullmatch(r"0?[0-7]{1,4}", value) else "is not a mode, such as 0644"


# ---- folders ----


def _open_local(url: Url, properties: Properties) -> ObjectStore:
    return LocalStore("/" + url.path, name=url.text)


# ---- claims of Kubernetes, and memory ----

_MOCK_PROPERTIES = (
    Property("pvc", "the claim whose volume is used, by pods only", fault=_kubernetes_name),
    Property("namespace", "of the claim, and of the jobs that use it", fault=_kubernetes_name),
)


def _open_mock(url: Url, properties: Properties) -> ObjectStore:
    if claim := properties.get("pvc"):
        message = f"{url.text} is the claim {shorten(claim)} of Kubernetes: only pods can use its files"
        raise Invalid(message, code=NOT_SUPPORTED, hint="submit a job to a queue of a Kubernetes cluster")
    return MemoryStore(url.text)


# ---- what a client of the machine mounts ----

_GLUSTERFS_PROPERTIES = (
    Property(
        "port",
        "of the management daemon, `24007` if not given",
        fault=lambda value: "" if re.fullmatch(r"[1-9]\d{0,4}", value) else "is not a port",
    ),
)
_NFS_PROPERTIES = (
    Property(
        "version", f"of NFS: `4.0`, `4.1`, `4.2` or `3`; `{NFS_VERSIONS[0]}` if not given", fault=_one_of(NFS_VERSIONS)
    ),
    Property(
        "security",
        "`sys`, or with Kerberos `krb5` (who asks is proven), `krb5i` (and nothing altered), `krb5p` (and encrypted); `sys` if not given",
        fault=_one_of(NFS_SECURITY),
    ),
)
_AFS_PROPERTIES = (
    Property("username", "who asks"),
    Property("password", "the user's password", secret=True),
)


def _nfs(url: Url, properties: Properties, wait: bool) -> NativeMount:
    return mount_nfs(
        url.text,
        _plain_host(url, url.host),
        url.port(2049),
        url.path,
        version=properties.get("version") or NFS_VERSIONS[0],
        security=properties.get("security") or NFS_SECURITY[0],
        wait=wait,
    )


def _glusterfs(url: Url, properties: Properties, wait: bool) -> NativeMount:
    host, volume = _volume_of(url)
    return mount_glusterfs(url.text, host, int(properties.get("port") or 24007), volume, url.path)


def _volume_of(url: Url) -> tuple[str, str]:
    """Host and volume."""
    host, _, volume = url.authority.partition(":")
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]*", volume):
        hint = f"write it as {SCHEMES['glusterfs'].form}"
        raise Invalid(f"{shorten(url.text)} names no volume", code=INVALID_URL, hint=hint)
    return _plain_host(url, host), volume


def _afs(url: Url, properties: Properties, wait: bool) -> NativeMount:
    user, password = properties.get("username", ""), properties.get("password", "")
    if not user or not password:
        raise Invalid("a store of type afs needs username and password", code=INVALID_PROPERTIES)
    return mount_afs(url.text, user, password)


def _plain_host(url: Url, host: str) -> str:
    """A host that programs take for nothing else."""
    if not re.fullmatch(r"[A-Za-z0-9:][A-Za-z0-9.:_%-]*", host):
        raise Invalid(f"{shorten(url.text)} names no host", code=INVALID_URL)
    return host


def open_mounted(url: Url, properties: Properties, programs: str = PROGRAMS) -> ObjectStore:
    """The store in a folder that a client of the machine mounts. `programs`: where clients are."""
    folder = open_native_folder(url.text, properties, wait=False, programs=programs)
    assert folder is not None, f"{url.scheme} is mounted by no client"
    try:
        return LocalStore(f"/proc/self/fd/{folder}", name=url.text)
    finally:
        os.close(folder)  # the store has its own


# ---- S3 and what speaks it ----

_KEYS = (
    Property("accessKey", "who asks; without it nothing is signed, for buckets that everybody may read"),
    Property("secretKey", "the key that belongs to `accessKey`", secret=True),
    Property("sessionToken", "the token of temporary keys", secret=True),
)
_MODES = (
    Property("fileMode", "mounts: mode of files that carry none, such as `0644`", fault=_mode),
    Property("dirMode", "mounts: mode of folders that carry none, such as `0755`", fault=_mode),
)
_S3_PROPERTIES = (
    *_KEYS,
    Property("endpoint", "the server, such as `https://s3.example.com`; if not given, AWS's own of the region"),
    Property("region", "the region that requests are signed for, `us-east-1` if not given"),
    Property("insecureSkipVerify", "`true`: the server's certificate is not checked", fault=_flag),
    Property("s3ForcePathStyle", "`false`: the bucket is part of the host's name, as OSS and COS want it", fault=_flag),
    *_MODES,
)
_BOS_PROPERTIES = (
    *_KEYS,
    Property("endpoint", "the server, such as `https://s3.bj.bcebos.com`; if not given, that of the region"),
    Property("region", "the region, `bj` if not given"),
)


def bucket_of(url: Url, properties: Properties) -> Bucket:
    from paddleflow.objects.s3 import Bucket
    from paddleflow.objects.signature import Credentials

    access_key, secret_key = properties.get("accessKey", ""), properties.get("secretKey", "")
    if bool(access_key) != bool(secret_key):
        raise Invalid("an accessKey needs a secretKey, and the other way round", code=INVALID_PROPERTIES)
    region = properties.get("region") or ("bj" if url.scheme == "bos" else "us-east-1")
    usual = f"https://s3.{region}.bcebos.com" if url.scheme == "bos" else f"https://s3.{region}.amazonaws.com"
    endpoint = properties.get("endpoint") or usual
    return Bucket(
        endpoint=endpoint if "://" in endpoint else f"https://{endpoint}",
        name=url.authority,
        prefix=url.path,
        region=region,
        credentials=Credentials(access_key, secret_key, properties.get("sessionToken", "")) if access_key else None,
        verify=not is_true(properties.get("insecureSkipVerify", "")),
        path_style=is_true(properties.get("s3ForcePathStyle") or "true"),
    )


def _open_s3(url: Url, properties: Properties) -> ObjectStore:
    from paddleflow.objects.s3 import S3Store

    return S3Store(bucket_of(url, properties))


def _s3_addresses(url: Url, properties: Properties) -> list[tuple[str, int]]:
    bucket = bucket_of(url, properties)
    endpoint = urlsplit(bucket.endpoint)
    host = endpoint.hostname or ""
    port = endpoint.port or (443 if endpoint.scheme == "https" else 80)
    return [(host if bucket.path_style else f"{bucket.name}.{host}", port)]


# ---- SFTP ----

_SFTP_PROPERTIES = (
    Property("user", "who asks"),
    Property("password", "the user's password, if there is no key", secret=True),
    Property("privateKey", "the text of the user's private key, as in `~/.ssh/id_ed25519`", secret=True, lines=True),
    Property("passphrase", "of the private key, if it has one", secret=True),
    Property(
        "hostKey",
        "the server's key: its fingerprint (`SHA256:…`) or the public key itself, several separated by commas; if not given, "
        "`~/.ssh/known_hosts` and `/etc/ssh/ssh_known_hosts` of the machine that connects must name it",
    ),
    Property("insecureSkipVerify", "`true`: any host key is accepted", fault=_flag),
)


def _open_sftp(url: Url, properties: Properties) -> ObjectStore:
    sftp = _driver(_SFTP)
    server = sftp.SftpServer(
        host=url.host,
        port=url.port(22),
        folder="/" + url.path,
        user=properties.get("user", ""),
        password=properties.get("password", ""),
        private_key=properties.get("privateKey", ""),
        passphrase=properties.get("passphrase", ""),
        host_key=properties.get("hostKey", ""),
        verify=not is_true(properties.get("insecureSkipVerify", "")),
    )
    store: ObjectStore = sftp.SftpStore(server)
    return store


# ---- storages of a server ----

_SERVED_PROPERTIES = (
    Property("token", "of the mount", secret=True),
    Property("mount", "its id"),
    Property("tls", "`true`: the server is asked over TLS", fault=_flag),
    Property("prefix", "of the server's paths, where it is behind a proxy"),
    Property("insecureSkipVerify", "`true`: the server's certificate is not checked", fault=_flag),
    Property("keep", "`true`: closing does not end the mount at the server", fault=_flag),
    *_MODES,
)


def _open_served(url: Url, properties: Properties) -> ObjectStore:
    from paddleflow.objects.served import ServedStorage, ServedStore

    if not (url.path and properties.get("token")):
        hint = "mount it by its name: paddleflow fs mount NAME DIR; in Python, fsspec opens pfs://NAME/path"
        raise Invalid(f"{shorten(url.text)} does not open a storage: that takes a token", code=INVALID_URL, hint=hint)
    place = ServedStorage(
        host=url.host,
        port=url.port(8999),
        storage=url.path,
        mount=properties.get("mount", ""),
        token=properties.get("token", ""),
        prefix=properties.get("prefix", ""),
        tls=is_true(properties.get("tls", "")),
        verify=not is_true(properties.get("insecureSkipVerify", "")),
        keep=is_true(properties.get("keep", "")),
    )
    return ServedStore(place)


# ---- HDFS ----


def _realm(value: str) -> str:
    """It becomes a word of a `krb5.conf`."""
    return "" if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", value) else "is not a realm, such as EXAMPLE.COM"


def _key_server(value: str) -> str:
    fits = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*(:\d{1,5})?|\[[0-9A-Fa-f:]+\](:\d{1,5})?", value)
    return "" if fits else "is not a server, such as kdc.example.com:88"


_PROTECTIONS = ("authentication", "integrity", "privacy")
_HDFS_PROPERTIES = (
    Property("user", "who asks, on a cluster without Kerberos; if not given, the account that PaddleFlow runs as"),
    Property("group", "accepted for clients that send it; HDFS itself knows the groups of a user"),
    Property("kerberos.principal", "who asks, such as `ada@EXAMPLE.COM`; with this property Kerberos is used"),
    Property(
        "kerberos.keytab.data",
        "the principal's keytab, in base64; without it the ticket cache is used",
        secret=True,
        lines=True,
    ),
    Property("kerberos.realm", "the realm, if the machine's `krb5.conf` does not know it", fault=_realm),
    Property(
        "kerberos.kdc",
        "the realm's key server, `host:port`, if the machine's `krb5.conf` does not know it",
        fault=_key_server,
    ),
    Property(
        "kerberos.namenode.principal", "accepted for clients that send it; it follows from the name node's address"
    ),
    Property(
        "kerberos.data.transfer.protection",
        "`authentication`, `integrity` or `privacy`, as the cluster has it in `dfs.data.transfer.protection`",
        fault=_one_of(_PROTECTIONS),
    ),
)
_NAME_NODE_PORT = 8020


def _name_nodes(url: Url) -> tuple[str, ...]:
    nodes = [node for node in url.authority.split(",") if node]
    return tuple(node if re.search(r":\d+$", node) else f"{node}:{_NAME_NODE_PORT}" for node in nodes)


def _open_hdfs(url: Url, properties: Properties) -> ObjectStore:
    hdfs = _driver(_HDFS)
    kerberos = None
    if any(name.startswith("kerberos.") for name in properties):
        if not properties.get("kerberos.principal"):
            raise Invalid("Kerberos needs kerberos.principal", code=INVALID_PROPERTIES, hint="such as ada@EXAMPLE.COM")
        kerberos = hdfs.Kerberos(
            principal=properties["kerberos.principal"],
            keytab=hdfs.decode_keytab(properties.get("kerberos.keytab.data", "")),
            realm=properties.get("kerberos.realm", ""),
            key_server=properties.get("kerberos.kdc", ""),
            protection=properties.get("kerberos.data.transfer.protection", ""),
        )
    place = hdfs.HdfsCluster(_name_nodes(url), "/" + url.path, properties.get("user", ""), kerberos)
    store: ObjectStore = hdfs.HdfsStore(place)
    return store


def _hdfs_addresses(url: Url, properties: Properties) -> list[tuple[str, int]]:
    split = (node.rpartition(":") for node in _name_nodes(url))
    return [(host.strip("[]"), int(port)) for host, _, port in split]


_S3, _SFTP, _HDFS, _SERVED = (f"paddleflow.objects.{name}" for name in ("s3", "sftp", "hdfs", "served"))


def _driver(module: str) -> Any:
    """A module whose driver may not be installed: stores that nobody opens cost nothing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        message = f"stores of this type need the package {error.name}, which is not installed"
        raise Unavailable(message, hint="pip install 'paddleflow[stores]'") from error


_TRUSTS_MACHINE = "its server trusts this machine, whoever asks"
_TRUSTS_SERVER = (
    "its driver trusts what a name node answers, and a cluster without Kerberos every name that this machine gives"
)

_TYPES = (
    Scheme("local", "local:///data/team", "a folder of this machine", _open_local),
    Scheme("file", "file:///data/team", "the same as `local`", _open_local),
    Scheme(
        "s3",
        "s3://bucket/path",
        "S3 and what speaks it: MinIO, OSS, COS",
        _open_s3,
        _S3_PROPERTIES,
        _s3_addresses,
        driver=_S3,
    ),
    Scheme(
        "bos",
        "bos://bucket/path",
        "Baidu's BOS, over its S3 service",
        _open_s3,
        _BOS_PROPERTIES,
        _s3_addresses,
        driver=_S3,
    ),
    Scheme(
        "sftp",
        "sftp://host:port/path",
        "a folder of an SFTP server",
        _open_sftp,
        _SFTP_PROPERTIES,
        lambda url, properties: [(url.host, url.port(22))],
        driver=_SFTP,
    ),
    Scheme(
        "hdfs",
        "hdfs://host:port[,host:port]/path",
        "a folder of HDFS; several name nodes are one highly available service",
        _open_hdfs,
        _HDFS_PROPERTIES,
        _hdfs_addresses,
        root_only=_TRUSTS_SERVER,
        driver=_HDFS,
    ),
    Scheme(
        "pfs",
        "pfs://host:port/ID",
        "a storage of a server, through its file service",
        _open_served,
        _SERVED_PROPERTIES,
        lambda url, properties: [(url.host, url.port(8999))],
        driver=_SERVED,
    ),
    Scheme(
        "cfs",
        "cfs://host/path",
        "NFS, mounted by the kernel",
        open_mounted,
        _NFS_PROPERTIES,
        lambda url, properties: [(url.host, url.port(2049))],
        _nfs,
        _TRUSTS_MACHINE,
    ),
    Scheme(
        "glusterfs",
        "glusterfs://host:volume/path",
        "a volume of GlusterFS, mounted by its client",
        open_mounted,
        _GLUSTERFS_PROPERTIES,
        lambda url, properties: [(_volume_of(url)[0], int(properties.get("port") or 24007))],
        _glusterfs,
        _TRUSTS_MACHINE,
        lambda url, properties: (
            url.authority.partition(":")[0],
            f"{url.authority.partition(':')[2]}/{url.path}".rstrip("/"),
        ),
    ),
    Scheme(
        "afs",
        "afs://host/path",
        "AFS, mounted by its client `afs_mount`",
        open_mounted,
        _AFS_PROPERTIES,
        native=_afs,
        root_only=_TRUSTS_MACHINE,
        shown=lambda url, properties: (f"afs://{url.authority}", f"/{url.path}"),
    ),
    Scheme(
        "mock",
        "mock://name",
        "with `pvc` and `namespace`: a claim of Kubernetes, for pods; without: this process's memory, for tests",
        _open_mock,
        _MOCK_PROPERTIES,
        shown=lambda url, properties: ("", f"/{url.authority}/{url.path}".rstrip("/")),
    ),
)
SCHEMES: Mapping[str, Scheme] = {each.name: each for each in _TYPES}
