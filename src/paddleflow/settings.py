"""The one configuration tree; with `environment` the only reader of variables.

A setting is looked up in this order: environment (``PADDLEFLOW_SERVER_PORT``), settings file (TOML, ``[server] port``),
default. Values are passed down from the composition root, never looked up elsewhere. ``docs/reference/settings.md`` is
generated from the sentences here.
"""

from __future__ import annotations

import dataclasses
import os
import tomllib
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, get_type_hints

from paddleflow.base.names import nearest
from paddleflow.base.values import dataclass
from paddleflow.environment import PREFIX, user_data_folder
from paddleflow.errors import Fault, Invalid


def _setting(default: Any, doc: str) -> Any:
    if isinstance(default, dict | list):
        return field(default_factory=lambda: type(default)(default), metadata={"doc": doc})
    return field(default=default, metadata={"doc": doc})


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The process itself."""

    host: str = _setting("127.0.0.1", "Address to listen on. Anything but loopback lets other machines in.")
    port: int = _setting(8999, "Port to listen on; 0 takes a free one.")
    data: str = _setting(
        "", "Folder for the database, logs and job folders. Empty: paddleflow in the user's data folder."
    )
    files: str = _setting(
        "",
        "Folder that all servers on one database share: code snapshots, and the logs of Kubernetes clusters. Empty: the data "
        "folder, which is enough for one server.",
    )
    log_level: str = _setting("info", "Least level that is logged: debug, info, warning or error.")
    log_format: str = _setting("auto", "json, text, or auto: text on a terminal and json elsewhere.")
    max_open_body: int = _setting(
        64 * 2**10, "Largest request body in bytes while the caller is not known: of a login."
    )
    max_body: int = _setting(2**20, "Largest request body in bytes.")
    max_bulk_body: int = _setting(16 * 2**20, "Largest request body in bytes of a batch of jobs, a pipeline or a run.")
    body_timeout: float = _setting(60.0, "Seconds within which a request body must arrive.")
    head_timeout: float = _setting(20.0, "Seconds within which the head of a request must arrive.")
    keep_alive: int = _setting(75, "Seconds that a connection without a request is kept.")
    write_timeout: float = _setting(
        60.0, "Seconds after which a client that does not read what waits for it is cut off."
    )
    max_connections: int = _setting(4096, "Most connections at once; fewer when the process may open fewer files.")
    max_connections_per_address: int = _setting(
        1024, "Most connections from one address; at this limit the one that is idle longest makes place."
    )
    max_mounts: int = _setting(1000, "Most mounts of one user through this server at once, those of pods included.")
    max_unfinished_uploads: str = _setting(
        "200Gi", "Most bytes of unfinished uploads to storages of one user on the server's disk, as a quantity."
    )
    tls_cert: str = _setting("", "File with the certificate chain (PEM). With tls_key: serve HTTPS.")
    tls_key: str = _setting("", "File with the private key of tls_cert (PEM).")
    advertise: str = _setting(
        "", "URL at which other servers on the same database reach this one. Empty: made of host and port."
    )
    trusted_proxies: str = _setting(
        "", "Addresses of proxies whose X-Forwarded-For names the client, comma-separated. Empty: none."
    )
    unknown_fields: str = _setting(
        "refuse", "What an unknown field in a request means: refuse, or ignore as older servers did."
    )


@dataclass(frozen=True, slots=True)
class DatabaseSettings:
    """Where the truth is kept."""

    url: str = _setting("", "Empty: a SQLite file in the data folder. Otherwise postgresql://user:password@host/name.")
    readers: int = _setting(2, "Threads that read.")
    durable: bool = _setting(
        True, "SQLite only: wait for the disk at each commit. False survives kill -9 but not a power cut."
    )


@dataclass(frozen=True, slots=True)
class EncryptionSettings:
    """Keys that secrets in the database are encrypted with."""

    key_file: str = _setting(
        "",
        "File with the keys. Empty: encryption.keys in the data folder, made at the first start. Servers on one database "
        "need the same keys.",
    )
    key_command: str = _setting(
        "", "Program, with arguments, that prints the keys instead, such as the client of a key service."
    )


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """Users and tokens."""

    root_password: str = _setting(
        "", "Fixes root's password. Empty: made at random at the first start and kept in the data folder."
    )
    token_hours: int = _setting(24 * 30, "Hours after which a token ends.")
    login_attempts: int = _setting(
        10, "Failed logins of one user from one address after which each further attempt must wait twice as long."
    )
    login_window: int = _setting(300, "Seconds that a failed login counts.")


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """The cluster that is this machine."""

    cpus: str = _setting("", "Cores given to jobs, as a quantity (8, 7500m). Empty: all that this process may use.")
    memory: str = _setting("", "Memory given to jobs, as a quantity (20Gi). Empty: all of the machine.")
    scalars: str = _setting("", "Further resources, such as nvidia.com/gpu=4. Jobs are given device numbers from 0.")
    ports: str = _setting("20000-29999", "Range from which distributed jobs get their ports.")
    limits: str = _setting(
        "auto", "auto: enforce CPU and memory limits by cgroups where the machine lets us; off: never."
    )
    isolation: str = _setting(
        "auto",
        "auto: jobs of users other than the platform's root run apart from each other and see only their own files, as far as "
        "the machine allows it; the log says at start what is in force. off: all jobs run as the server's account.",
    )
    uids: str = _setting("200000-265535", "User numbers that are given to users whose jobs run isolated.")
    processes: int = _setting(4096, "Most processes and threads that a user's isolated jobs may have at once; 0: any.")
    containers: str = _setting(
        "off",
        "off: `image` of a job is ignored; podman or docker: a job with an image runs in a container of it. The command may have a "
        "path and options of its own: podman --runtime runc.",
    )
    pull: str = _setting(
        "never", "Images of containers: never pulled; pulled when missing; or always, before each start."
    )
    container_options: str = _setting(
        "", "Further options of `podman create` or `docker create`, as a shell reads them."
    )
    grace: float = _setting(10.0, "Seconds between SIGTERM and SIGKILL when a job is stopped.")
    inherit: str = _setting("PATH,HOME,LANG,LC_ALL,TZ,USER,SHELL,TMPDIR", "Variables of the server that jobs see too.")
    sample_every: float = _setting(5.0, "Seconds between two samples of what jobs use.")
    claim: bool = _setting(
        False,
        "Take default-cluster over from the server whose machine it is; what runs there is lost. See several servers.",
    )
    storages: str = _setting(
        "auto",
        "How jobs see storages that are no folders of this machine. mount: by the file system's client; copy: only the artifacts of "
        "steps, copied before and after; auto: mount where /dev/fuse can be used, otherwise copy.",
    )
    storage_wait: float = _setting(
        120.0,
        "Seconds that a job waits, at its start and at its end, for a storage that cannot be reached; then it fails.",
    )
    mount_idle: float = _setting(300.0, "Seconds after its last job until a storage is unmounted.")
    mounts_per_user: int = _setting(
        32, "Most storages of one owner that are mounted for jobs at once; further jobs wait. 0: any number."
    )
    log_limit: str = _setting(
        "64Mi", "Most bytes kept of one log: the first and the last half of it. What is left out is said."
    )


@dataclass(frozen=True, slots=True)
class JobSettings:
    """Rules for jobs."""

    restart_limit: int = _setting(6, "How often a job with a restart policy is started again before it fails.")
    restart_delay: float = _setting(
        1.0, "Seconds before a failed job is started again; each further delay is twice as long, up to 300 s."
    )
    ttl_succeeded: int = _setting(0, "Seconds after which succeeded jobs are deleted; 0 keeps them.")
    ttl_failed: int = _setting(0, "Seconds after which other ended jobs are deleted; 0 keeps them.")
    code_limit: str = _setting(
        "10Gi", "Most bytes of code snapshots that the server keeps for one user, as a quantity."
    )
    skip_resource_validate: bool = _setting(False, "Accept jobs that are larger than their queue's maximum; they wait.")
    max_document: int = _setting(
        512 * 2**10, "Largest job in bytes, with everything that it names; larger ones are refused."
    )
    max_environment: int = _setting(
        256 * 2**10, "Most bytes of the variables of one member of a job, names and values."
    )


@dataclass(frozen=True, slots=True)
class SchedulingSettings:
    """Who goes first, who makes way for whom, and how fast."""

    preemption: bool = _setting(
        True,
        "Whether running jobs are ended for others: a higher priority of their queue, or a guarantee they borrowed.",
    )
    elastic: bool = _setting(
        True,
        "Whether running jobs with minReplicas and maxReplicas get more and fewer members; off: only at their start.",
    )
    patience: float = _setting(
        300.0, "Seconds after which a waiting job goes before the rest of its priority, and room is kept for it."
    )
    data_wait: float = _setting(
        0.0,
        "Seconds that a job waits for a node that holds part of its file systems in its cache before it starts elsewhere.",
    )
    least_run: float = _setting(60.0, "Seconds that a job runs before it may be ended for another; at least 1.")
    eviction_window: float = _setting(
        1800.0, "Seconds after it made way during which a job is not ended for another again."
    )
    half_life: float = _setting(86_400.0, "Seconds after which past use counts half, in queues of order fair.")
    resize_pause: float = _setting(30.0, "Seconds between two changes of a job's number of members; at least 1.")
    restart_pause: float = _setting(
        600.0, "The same before it grows, for a job that is started anew at each change (resize: restart); at least 1."
    )

    forecast_seconds: float = _setting(
        5.0, "Seconds that computing when waiting jobs start may take; after that it answers with what it has."
    )

    log_size: str = _setting(
        "64Mi", "Most bytes kept of the record of decisions, for replay and what-if, as a quantity; 0 keeps none."
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a server."""

    server: ServerSettings = field(default_factory=ServerSettings)
    database: DatabaseSettings = field(default_factory=DatabaseSettings)
    encryption: EncryptionSettings = field(default_factory=EncryptionSettings)
    access: AccessSettings = field(default_factory=AccessSettings)
    local: LocalSettings = field(default_factory=LocalSettings)
    jobs: JobSettings = field(default_factory=JobSettings)
    scheduling: SchedulingSettings = field(default_factory=SchedulingSettings)

    @property
    def data_folder(self) -> Path:
        return Path(self.server.data).expanduser() if self.server.data else user_data_folder()

    @property
    def files_folder(self) -> Path:
        return Path(self.server.files).expanduser() if self.server.files else self.data_folder


def load(file: Path | None = None, environ: Mapping[str, str] | None = None) -> Settings:
    """Settings from file and environment; `Invalid` names every wrong one at once."""
    env = os.environ if environ is None else environ
    text: dict[str, Any] = {}
    if file is not None:
        try:
            text = tomllib.loads(file.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise Invalid(f"settings file {file}: {error}") from error
    faults: list[Fault] = []
    sections: dict[str, Any] = {}
    for section in dataclasses.fields(Settings):
        given = text.pop(section.name, {})
        sections[section.name] = _section(section.name, get_type_hints(Settings)[section.name], given, env, faults)
    known = [section.name for section in dataclasses.fields(Settings)]
    faults.extend(Fault(name, "is not a known section", nearest(name, known)) for name in text)
    if faults:
        raise Invalid.of(faults)
    return Settings(**sections)


def unknown_variables(environ: Mapping[str, str] | None = None) -> list[Fault]:
    """Variables that look like settings and are none: most likely misspelt. No error: others may set them, as Kubernetes does."""
    env = os.environ if environ is None else environ
    known = [variable for _, variable, _, _ in describe()]
    sections = tuple(f"{PREFIX}{section.name}_".upper() for section in dataclasses.fields(Settings))
    wrong = sorted(name for name in env if name.startswith(sections) and name not in {*known, f"{PREFIX}SERVER_CONFIG"})
    return [Fault(name, "is not a known setting", nearest(name, known)) for name in wrong]


def _section(name: str, kind: Any, given: Any, env: Mapping[str, str], faults: list[Fault]) -> Any:
    values: dict[str, Any] = {}
    if not isinstance(given, dict):
        faults.append(Fault(name, "must be a table"))
        given = {}
    known = {item.name: item for item in dataclasses.fields(kind)}
    faults.extend(
        Fault(f"{name}.{key}", "is not a known setting", nearest(key, known)) for key in given if key not in known
    )
    for key, item in known.items():
        variable = f"{PREFIX}{name}_{key}".upper()
        raw = env.get(variable, given.get(key))
        if raw is None:
            continue
        where = variable if variable in env else f"{name}.{key}"
        try:
            values[key] = _converted(raw, item.type)
        except ValueError:
            faults.append(Fault(where, f"must be of type {item.type}, found {raw!r}"))
    return kind(**values)


def _converted(raw: Any, kind: Any) -> Any:
    if kind == "bool":
        if isinstance(raw, bool):
            return raw
        words = {
            "1": True,
            "true": True,
            "yes": True,
            "on": True,
            "0": False,
            "false": False,
            "no": False,
            "off": False,
        }
        if str(raw).lower() not in words:
            raise ValueError(raw)
        return words[str(raw).lower()]
    if isinstance(raw, bool):
        raise ValueError(raw)
    return {"int": int, "float": float, "str": str}[kind](raw)


def describe() -> list[tuple[str, str, object, str]]:
    """(section.key, variable, default, sentence) of every setting, for the reference page and the conventions test."""
    rows = []
    for section in dataclasses.fields(Settings):
        kind = get_type_hints(Settings)[section.name]
        for item in dataclasses.fields(kind):
            default = item.default
            rows.append(
                (
                    f"{section.name}.{item.name}",
                    f"{PREFIX}{section.name}_{item.name}".upper(),
                    default,
                    item.metadata["doc"],
                )
            )
    return rows


@dataclass(frozen=True, slots=True)
class KubernetesEnvironment:
    """What the environment says about the API server; empty: nothing."""

    host: str = ""  #: KUBERNETES_SERVICE_HOST, which every pod is given
    port: str = ""  #: KUBERNETES_SERVICE_PORT
    kubeconfig: str = ""  #: KUBECONFIG (files, separated by colons), or the file of this user if there is one
    https_proxy: str = ""
    http_proxy: str = ""
    no_proxy: str = ""
    variables: Mapping[str, str] = field(
        default_factory=dict, compare=False, repr=False
    )  #: what `exec` plugins inherit


def kubernetes_environment(environ: Mapping[str, str] | None = None) -> KubernetesEnvironment:
    """Where a program on Kubernetes, or on the machine of somebody who uses one, finds the API server."""
    env = os.environ if environ is None else environ
    own = Path(env.get("HOME") or "~").expanduser() / ".kube" / "config"
    file = env.get("KUBECONFIG") or (str(own) if own.is_file() else "")
    proxies = {
        name.lower(): env.get(name) or env.get(name.lower()) or "" for name in ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY")
    }
    return KubernetesEnvironment(
        host=env.get("KUBERNETES_SERVICE_HOST", ""),
        port=env.get("KUBERNETES_SERVICE_PORT", ""),
        kubeconfig=file,
        https_proxy=proxies["https_proxy"],
        http_proxy=proxies["http_proxy"],
        no_proxy=proxies["no_proxy"],
        variables=dict(env),
    )
