"""Where the API server is and how to authenticate there: kubeconfig files, or the service account that a pod is given.

Several files in KUBECONFIG are merged as kubectl does it: of equal names the first file's counts. Certificates may be files,
relative to their kubeconfig, or data. What changes while the process runs is in `credentials`, the way there in `proxy`.
"""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from paddleflow.base.values import dataclass
from paddleflow.errors import Invalid
from paddleflow.kube.credentials import Credentials, ExecPlugin, StaticToken, TokenFile, read_plugin
from paddleflow.kube.proxy import Proxy, choose_proxy, read_proxy
from paddleflow.kube.transport import Endpoint
from paddleflow.settings import KubernetesEnvironment

_SENT = Path("that was sent")  #: stands for the file of a kubeconfig that has none here
SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def find(environment: KubernetesEnvironment, file: Path | None = None, context: str = "") -> Endpoint:
    """The API server to use: the file that was named, else the cluster that this pod is in, else the user's kubeconfig."""
    if file is not None:
        return from_kubeconfig([file], context, environment)
    if environment.host:
        return in_cluster(environment)
    if environment.kubeconfig:
        files = [Path(each) for each in environment.kubeconfig.split(os.pathsep) if each]
        return from_kubeconfig([each for each in files if each.exists()] or files, context, environment)
    raise Invalid("no Kubernetes to talk to", hint="name a kubeconfig file, or set KUBECONFIG")


def in_cluster(environment: KubernetesEnvironment, folder: Path = SERVICE_ACCOUNT) -> Endpoint:
    """The API server of the cluster that this pod is in; host and port are what the kubelet puts into the environment."""
    host, port = environment.host, int(environment.port or 443)
    try:
        tls = _verifying(str(folder / "ca.crt"))
        token = TokenFile(folder / "token")
        space = (folder / "namespace").read_text("utf-8").strip()
    except OSError as error:
        raise Invalid(
            f"service account in {folder}: {error}",
            hint="does the pod have automountServiceAccountToken: false? Outside a cluster name a kubeconfig file",
        ) from error
    proxy = choose_proxy(environment, host, port, secure=True)
    return Endpoint(host, port, tls, credentials=token, namespace=space, proxy=proxy)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A context, cluster or user, with the kubeconfig that it stands in."""

    name: str
    body: Mapping[str, Any]
    file: Path


def from_kubeconfig(
    files: Path | Sequence[Path], context: str = "", environment: KubernetesEnvironment | None = None
) -> Endpoint:
    """The endpoint that a context of kubeconfig files names; the current one unless another is asked for."""
    documents = {file: _load(file) for file in ([files] if isinstance(files, Path) else files)}
    return _endpoint(documents, context, environment or KubernetesEnvironment())


def from_text(text: str, environment: KubernetesEnvironment | None = None) -> Endpoint:
    """The endpoint of a kubeconfig that came without its machine: it may name no files, and programs of the PATH only."""
    documents = {_SENT: _parsed(text, _SENT)}
    chosen = _named(documents, "contexts", str(documents[_SENT].get("current-context") or ""))
    for section, name in (("clusters", chosen.body.get("cluster")), ("users", chosen.body.get("user"))):
        if not name:
            continue
        body = _named(documents, section, str(name)).body
        for key in ("certificate-authority", "client-certificate", "client-key", "tokenFile"):
            if body.get(key) and not body.get(f"{key}-data"):
                raise Invalid(
                    f"kubeconfig: {key} of {section[:-1]} {name} names a file, which is not on the server",
                    hint="kubectl config view --flatten --minify > FILE puts all of them into one file",
                )
    return _endpoint(documents, "", environment or KubernetesEnvironment())


def _endpoint(
    documents: Mapping[Path, Mapping[str, Any]], context: str, environment: KubernetesEnvironment
) -> Endpoint:
    wanted = context or next(
        (str(each["current-context"]) for each in documents.values() if each.get("current-context")), ""
    )
    chosen = _named(documents, "contexts", wanted)
    cluster = _named(documents, "clusters", str(chosen.body.get("cluster")))
    user = (
        _named(documents, "users", str(chosen.body["user"])) if chosen.body.get("user") else _Entry("", {}, chosen.file)
    )
    server = str(cluster.body.get("server", ""))
    address = urlsplit(server)
    if address.scheme not in {"http", "https"} or not address.hostname:
        raise Invalid(
            f"kubeconfig {cluster.file}: server {cluster.body.get('server')!r} is not an http or https address"
        )
    secure = address.scheme == "https"
    port = address.port or (443 if secure else 80)
    if url := cluster.body.get("proxy-url"):
        proxy: Proxy | None = read_proxy(str(url), f"kubeconfig {cluster.file}: proxy-url")
    else:
        proxy = choose_proxy(environment, address.hostname, port, secure=secure)
    return Endpoint(
        host=address.hostname,
        port=port,
        tls=_tls(cluster, user) if secure else None,
        prefix=address.path.rstrip("/"),
        server_name=str(cluster.body.get("tls-server-name") or ""),
        credentials=_credentials(cluster, user, environment),
        namespace=str(chosen.body.get("namespace") or "default"),
        proxy=proxy,
    )


def _load(file: Path) -> Mapping[str, Any]:
    try:
        return _parsed(file.read_text("utf-8"), file)
    except (OSError, ValueError) as error:
        raise Invalid(f"kubeconfig {file}: {error}") from error


def _parsed(text: str, file: Path) -> Mapping[str, Any]:
    try:
        document = yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        raise Invalid(f"kubeconfig {file}: {error}") from error
    if not isinstance(document, dict):
        raise Invalid(f"kubeconfig {file}: it is not a mapping but {type(document).__name__}")
    return document


def _named(documents: Mapping[Path, Mapping[str, Any]], section: str, wanted: str) -> _Entry:
    entries = [(file, entry) for file, document in documents.items() for entry in document.get(section) or ()]
    for file, entry in entries:
        if entry.get("name") == wanted:
            return _Entry(wanted, entry.get(section[:-1]) or {}, file)
    known = ", ".join(str(entry.get("name")) for _, entry in entries) or "none"
    shown = os.pathsep.join(str(file) for file in documents)
    raise Invalid(f"kubeconfig {shown}: no {section[:-1]} named {wanted!r}", hint=f"it has: {known}")


def _credentials(cluster: _Entry, user: _Entry, environment: KubernetesEnvironment) -> Credentials:
    body, file = user.body, user.file
    for way, instead in (("auth-provider", "an exec plugin"), ("username", "a token or a client certificate")):
        if body.get(way):
            raise Invalid(
                f"kubeconfig {file}: user {user.name} authenticates by {way}, which Kubernetes has removed",
                hint=f"use {instead}",
            )
    if body.get("exec"):
        plugin = read_plugin(user.name, body["exec"], cluster.body, file)
        return ExecPlugin(plugin, lambda pem, key: _with_certificate(cluster, user, pem, key), environment.variables)
    if body.get("tokenFile"):
        try:
            return TokenFile(file.parent / str(body["tokenFile"]))
        except OSError as error:
            raise Invalid(f"kubeconfig {file}: tokenFile: {error}") from error
    return StaticToken(str(body.get("token") or ""))


def _with_certificate(cluster: _Entry, user: _Entry, pem: str, key: str) -> ssl.SSLContext:
    """The context of an endpoint with the client certificate of an exec plugin."""
    tls = _tls(cluster, _Entry(user.name, {}, user.file))
    with _pem(pem.encode()) as certificate, _pem(key.encode()) as secret:
        tls.load_cert_chain(certificate, secret)
    return tls


def _verifying(authority: str) -> ssl.SSLContext:
    """A context that trusts the authority of a cluster."""
    tls = ssl.create_default_context(cafile=authority)
    # Set by Python 3.13: it asks for extensions that the authorities of many clusters lack, and kubectl does not mind.
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return tls


def _tls(cluster: _Entry, user: _Entry) -> ssl.SSLContext:
    tls = ssl.create_default_context()
    try:
        with _file(cluster, "certificate-authority") as authority:
            if authority:
                tls = _verifying(authority)
        if cluster.body.get("insecure-skip-tls-verify"):
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
        with _file(user, "client-certificate") as certificate, _file(user, "client-key") as secret:
            if certificate:
                tls.load_cert_chain(certificate, secret or None)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise Invalid(f"kubeconfig {cluster.file}: certificates: {error}") from error
    return tls


@contextmanager
def _file(entry: _Entry, name: str) -> Iterator[str]:
    """The path of a certificate that stands in a file or, encoded, in the entry itself; empty when it is not given."""
    data = entry.body.get(f"{name}-data")
    if not data:
        given = entry.body.get(name)
        yield str(entry.file.parent / str(given)) if given else ""
        return
    with _pem(base64.b64decode(data)) as file:
        yield file


@contextmanager
def _pem(data: bytes) -> Iterator[str]:
    """The data as a file: the ssl module reads keys from nothing else."""
    with tempfile.NamedTemporaryFile(suffix=".pem") as kept:
        kept.write(data)
        kept.flush()
        yield kept.name
