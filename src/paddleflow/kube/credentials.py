"""How a client proves who it is to an API server: a fixed token, a token in a file, or an `exec` plugin of a kubeconfig.

`HttpTransport` asks for the current `Credential` before each request and reports one that was answered with 401; whoever can
get another one then does, and the request is sent once more (it was refused before it was done). Tokens in files are read
again while the process runs, because the kubelet renews them.

An `exec` plugin (client.authentication.k8s.io, v1 and v1beta1) is a program that prints a credential; the kubeconfigs of cloud
providers name one. It is run when the first credential is needed, and again when the last one expired or was rejected; many
requests at once wait for one run. It never gets our standard input: an operator has nobody who could answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from paddleflow.base.values import dataclass
from paddleflow.errors import Invalid, Unavailable

TOKEN_AGE = 60.0  #: seconds after which a token's file is read again
PLUGIN_TIMEOUT = 60.0  #: seconds that a plugin has to print its credential
EXPIRY_MARGIN = 5.0  #: seconds before its expiry at which a credential is not used any more
MOST_OUTPUT = 1 << 20  #: bytes that a plugin may print
API_GROUP = "client.authentication.k8s.io"
VERSIONS = (f"{API_GROUP}/v1", f"{API_GROUP}/v1beta1")


@dataclass(frozen=True, slots=True)
class Credential:
    """What a request carries. `tls` is set where a client certificate belongs to it; None: the endpoint's own context."""

    token: str = field(default="", repr=False)
    tls: ssl.SSLContext | None = None


class Credentials(Protocol):
    """Where an endpoint's credentials come from."""

    async def get(self) -> Credential:
        """The credential to use now."""
        ...

    def reject(self, credential: Credential) -> bool:
        """The API server answered 401 to this one; whether `get` may have another one now."""
        ...


class StaticToken:
    """A token that never changes; empty: none, as with client certificates."""

    def __init__(self, token: str = "") -> None:
        self._credential = Credential(token)

    async def get(self) -> Credential:
        return self._credential

    def reject(self, credential: Credential) -> bool:
        return False


class TokenFile:
    """A token that is read again when it is older than a minute or was rejected; an unreadable file leaves the last one."""

    def __init__(self, file: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._clock = clock
        self._credential = Credential(file.read_text("utf-8").strip())
        self._read_at = clock()

    async def get(self) -> Credential:
        if self._clock() - self._read_at >= TOKEN_AGE:
            self._read()
        return self._credential

    def reject(self, credential: Credential) -> bool:
        if self._credential is credential:
            self._read()
        return self._credential.token != credential.token

    def _read(self) -> None:
        self._read_at = self._clock()
        with contextlib.suppress(OSError):
            token = self._file.read_text("utf-8").strip()
            if token and token != self._credential.token:
                self._credential = Credential(token)


@dataclass(frozen=True, slots=True)
class PluginCommand:
    """`user.exec` of a kubeconfig. `folder` is the kubeconfig's own: a command with a slash is relative to it."""

    user: str
    command: str
    args: Sequence[str]
    env: Mapping[str, str]  #: beside the process's own environment
    version: str
    install_hint: str
    cluster: Mapping[str, Any] | None  #: what the plugin is told of the cluster, if it asks for that
    folder: Path


def read_plugin(user: str, entry: Mapping[str, Any], cluster: Mapping[str, Any], file: Path) -> PluginCommand:
    """The plugin that a kubeconfig names; `Invalid` when it cannot be run here."""
    where = f"kubeconfig {file}: exec of user {user}"
    version = str(entry.get("apiVersion") or "")
    if version not in VERSIONS:
        raise Invalid(f"{where}: apiVersion {version!r} is not supported", hint=f"supported: {', '.join(VERSIONS)}")
    if not entry.get("command"):
        raise Invalid(f"{where}: command is missing")
    if entry.get("interactiveMode") == "Always":
        raise Invalid(
            f"{where}: {entry['command']} wants a terminal (interactiveMode: Always), which a service has not",
            hint="use interactiveMode: IfAvailable or Never if the plugin can work without questions",
        )
    return PluginCommand(
        user=user,
        command=str(entry["command"]),
        args=[str(each) for each in entry.get("args") or ()],
        env={str(each["name"]): str(each.get("value", "")) for each in entry.get("env") or ()},
        version=version,
        install_hint=" ".join(str(entry.get("installHint") or "").split()),
        cluster=cluster_info(cluster, file.parent) if entry.get("provideClusterInfo") else None,
        folder=file.parent,
    )


def cluster_info(cluster: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """`spec.cluster` of an ExecCredential, as plugins with provideClusterInfo get it."""
    names = ("server", "tls-server-name", "insecure-skip-tls-verify", "certificate-authority-data", "proxy-url")
    found = {name: cluster[name] for name in names if cluster.get(name)}
    if cluster.get("certificate-authority") and "certificate-authority-data" not in found:
        found["certificate-authority"] = str(folder / str(cluster["certificate-authority"]))
    for extension in cluster.get("extensions") or ():
        if extension.get("name") == f"{API_GROUP}/exec":
            found["config"] = extension.get("extension")
    return found


class ExecPlugin:
    """Credentials that a program prints."""

    def __init__(
        self,
        plugin: PluginCommand,
        tls: Callable[[str, str], ssl.SSLContext],
        environ: Mapping[str, str],
        *,
        wall: Callable[[], float] = time.time,
        run_timeout: float = PLUGIN_TIMEOUT,
    ) -> None:
        """`tls` makes a context with a client certificate and its key, both as PEM. `environ` is the process's environment."""
        self._plugin = plugin
        self._tls = tls
        self._environ = environ
        self._wall = wall
        self._run_timeout = run_timeout
        self._current: Credential | None = None
        self._expires = float("inf")
        self._lock = asyncio.Lock()

    async def get(self) -> Credential:
        if (current := self._usable()) is not None:
            return current
        async with self._lock:  # one run for all who wait
            if (current := self._usable()) is None:
                current = self._current = await self._run()
        return current

    def reject(self, credential: Credential) -> bool:
        if self._current is credential:
            self._current = None
        return True

    def _usable(self) -> Credential | None:
        return self._current if self._wall() < self._expires - EXPIRY_MARGIN else None

    async def _run(self) -> Credential:
        plugin = self._plugin
        program = self._program()
        spec: dict[str, Any] = {"interactive": False}
        if plugin.cluster is not None:
            spec["cluster"] = plugin.cluster
        info = {"apiVersion": plugin.version, "kind": "ExecCredential", "spec": spec}
        env = {**self._environ, **plugin.env, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        try:
            process = await asyncio.create_subprocess_exec(
                program,
                *plugin.args,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=env,
            )
        except OSError as error:
            raise Invalid(
                f"{self._name}: cannot be started: {error.strerror or error}", hint=plugin.install_hint
            ) from error
        try:
            async with asyncio.timeout(self._run_timeout):
                output, errors = await asyncio.gather(_read(process.stdout), _read(process.stderr))
                await process.wait()
        except TimeoutError as error:
            raise Unavailable(f"{self._name}: printed no credential within {self._run_timeout:g} s") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            last = errors.decode("utf-8", "replace").strip()[-500:] or "it printed nothing on standard error"
            raise Unavailable(f"{self._name}: exit code {process.returncode}: {last}", hint=plugin.install_hint)
        return self._read_credential(output)

    @property
    def _name(self) -> str:
        return f"credential plugin {self._plugin.command} of user {self._plugin.user}"

    def _program(self) -> str:
        command = self._plugin.command
        if "/" in command:
            return str(self._plugin.folder / command)
        found = shutil.which(command, path=self._plugin.env.get("PATH") or self._environ.get("PATH"))
        if found is None:
            raise Invalid(f"{self._name}: no such program on the PATH", hint=self._plugin.install_hint)
        return found

    def _read_credential(self, output: bytes) -> Credential:
        try:
            document = json.loads(output)
            version, status = document["apiVersion"], document["status"]
            token, pem, key = (
                str(status.get(name) or "") for name in ("token", "clientCertificateData", "clientKeyData")
            )
            expiry = str(status.get("expirationTimestamp") or "")
            expires = datetime.fromisoformat(expiry).timestamp() if expiry else float("inf")
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise Unavailable(
                f"{self._name}: what it printed is not an ExecCredential with a status: {error!r}"
            ) from error
        if version != self._plugin.version:
            raise Unavailable(
                f"{self._name}: printed apiVersion {version!r}, the kubeconfig says {self._plugin.version}"
            )
        if bool(pem) != bool(key):
            raise Unavailable(f"{self._name}: clientCertificateData and clientKeyData belong together, one is missing")
        if not token and not pem:
            raise Unavailable(f"{self._name}: printed neither a token nor a client certificate")
        try:
            found = Credential(token, self._tls(pem, key) if pem else None)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise Unavailable(f"{self._name}: its client certificate cannot be used: {error}") from error
        self._expires = expires
        return found


async def _read(stream: asyncio.StreamReader | None) -> bytes:
    """All of it, up to the limit; the rest is read and dropped, so that the program can end."""
    assert stream is not None, "it is a pipe"
    kept = b""
    while part := await stream.read(1 << 16):
        kept = (kept + part)[:MOST_OUTPUT]
    return kept
