"""Where the API server is and who we are there: a kubeconfig file, or the service account that a pod is given.

Tokens in files are read again while the process lives, for the kubelet renews them. Certificates in a kubeconfig may be
files or data. Programs that make credentials (`exec`) are not run: such a file is refused in words.
"""

from __future__ import annotations

import base64
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from paddleflow.errors import Invalid
from paddleflow.kube.transport import Endpoint
from paddleflow.settings import KubernetesEnvironment

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_AGE = 60.0  #: seconds after which a token's file is read again


class TokenFile:
    """A token that is read again when it is older than a minute; an unreadable file leaves the one we have."""

    def __init__(self, file: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._file = file
        self._clock = clock
        self._token = file.read_text("utf-8").strip()
        self._read_at = clock()

    def __call__(self) -> str:
        now = self._clock()
        if now - self._read_at >= TOKEN_AGE:
            self._read_at = now
            try:
                self._token = self._file.read_text("utf-8").strip() or self._token
            except OSError:
                return self._token
        return self._token


def find(around: KubernetesEnvironment, file: Path | None = None, context: str = "") -> Endpoint:
    """The API server to use: the file that was named, else the cluster that this pod is in, else the user's kubeconfig."""
    if file is not None:
        return from_kubeconfig(file, context)
    if around.host:
        return in_cluster(around.host, around.port)
    if around.kubeconfig:
        return from_kubeconfig(Path(around.kubeconfig), context)
    raise Invalid("no Kubernetes to talk to", hint="name a kubeconfig file, or set KUBECONFIG")


def in_cluster(host: str, port: str, folder: Path = SERVICE_ACCOUNT) -> Endpoint:
    """The API server of the cluster that this pod is in; host and port are what the kubelet puts into the environment."""
    try:
        tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        token = TokenFile(folder / "token")
        space = (folder / "namespace").read_text("utf-8").strip()
    except OSError as error:
        raise Invalid(
            f"service account in {folder}: {error}",
            hint="does the pod have automountServiceAccountToken: false? Outside a cluster name a kubeconfig file",
        ) from error
    return Endpoint(host, int(port or 443), tls, token=token, namespace=space)


def from_kubeconfig(file: Path, context: str = "") -> Endpoint:
    """The endpoint that a context of a kubeconfig file names; its current one unless another is asked for."""
    try:
        document = yaml.safe_load(file.read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise Invalid(f"kubeconfig {file}: {error}") from error
    if not isinstance(document, dict):
        raise Invalid(f"kubeconfig {file}: it is not a mapping but {type(document).__name__}")
    wanted = context or document.get("current-context") or ""
    chosen = _named(document, "contexts", wanted, file)["context"]
    cluster = _named(document, "clusters", str(chosen.get("cluster")), file)["cluster"]
    user = _named(document, "users", chosen["user"], file)["user"] if chosen.get("user") else {}
    for way in ("exec", "auth-provider", "username"):
        if user.get(way):
            raise Invalid(
                f"kubeconfig {file}: user {chosen['user']} proves itself by {way}, which is not supported",
                hint="use a token, a tokenFile or a client certificate",
            )
    address = urlsplit(str(cluster.get("server", "")))
    if address.scheme not in {"http", "https"} or not address.hostname:
        raise Invalid(f"kubeconfig {file}: server {cluster.get('server')!r} is not an http or https address")
    secure = address.scheme == "https"
    return Endpoint(
        host=address.hostname,
        port=address.port or (443 if secure else 80),
        tls=_tls(cluster, user, file) if secure else None,
        prefix=address.path.rstrip("/"),
        server_name=str(cluster.get("tls-server-name") or ""),
        token=_token(user, file),
        namespace=str(chosen.get("namespace") or "default"),
    )


def _named(document: Mapping[str, Any], section: str, wanted: str, file: Path) -> Mapping[str, Any]:
    entries = document.get(section) or []
    for entry in entries:
        if entry.get("name") == wanted:
            found: Mapping[str, Any] = entry
            return found
    known = ", ".join(str(entry.get("name")) for entry in entries) or "none"
    raise Invalid(f"kubeconfig {file}: no {section[:-1]} named {wanted!r}", hint=f"it has: {known}")


def _token(user: Mapping[str, Any], file: Path) -> Callable[[], str]:
    if user.get("tokenFile"):
        try:
            return TokenFile(file.parent / str(user["tokenFile"]))
        except OSError as error:
            raise Invalid(f"kubeconfig {file}: tokenFile: {error}") from error
    token = str(user.get("token") or "")
    return lambda: token


def _tls(cluster: Mapping[str, Any], user: Mapping[str, Any], file: Path) -> ssl.SSLContext:
    tls = ssl.create_default_context()
    try:
        with _file(cluster, "certificate-authority", file) as authority:
            if authority:
                tls = ssl.create_default_context(cafile=authority)
        if cluster.get("insecure-skip-tls-verify"):
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
        with _file(user, "client-certificate", file) as certificate, _file(user, "client-key", file) as secret:
            if certificate:
                tls.load_cert_chain(certificate, secret or None)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise Invalid(f"kubeconfig {file}: certificates: {error}") from error
    return tls


@contextmanager
def _file(section: Mapping[str, Any], name: str, kubeconfig: Path) -> Iterator[str]:
    """The path of a certificate that stands in a file or, encoded, in the section itself; empty when it is not given."""
    data = section.get(f"{name}-data")
    if not data:
        given = section.get(name)
        yield str(kubeconfig.parent / str(given)) if given else ""
        return
    with tempfile.NamedTemporaryFile(suffix=".pem") as kept:  # the ssl module reads keys from files only
        kept.write(base64.b64decode(data))
        kept.flush()
        yield kept.name
