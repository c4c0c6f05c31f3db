"""Keys, certificates and tokens of one cluster: a certificate authority of its own, made anew each time it comes up."""

from __future__ import annotations

import base64
import json
import secrets
import shutil
import subprocess
from pathlib import Path

from scripts.lib.cluster.errors import ClusterError
from scripts.lib.cluster.inventory import HUB, LOOPBACK, MOST_NODES, Cluster

#: who may speak to the API server, and the groups that give them their rights
_USERS = {
    "admin": ("admin", "system:masters"),
    "controllers": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "proxy": ("system:kube-proxy", ""),
    **{f"node{number}": (f"system:node:node{number}", "system:nodes") for number in range(1, MOST_NODES + 1)},
}
_SERVER_NAMES = (
    *(f"IP:{LOOPBACK}", f"IP:{HUB}", "IP:10.97.0.1", "DNS:localhost", "DNS:kubernetes", "DNS:kubernetes.default"),
    *("DNS:kubernetes.default.svc", "DNS:kubernetes.default.svc.cluster.local"),
)


def make(cluster: Cluster) -> None:
    """Everything that the control plane and its clients prove themselves with."""
    if shutil.which("openssl") is None:
        raise ClusterError("openssl is not installed", "Debian: apt-get install openssl")
    folder = cluster.folder / "keys"
    folder.mkdir(mode=0o700)
    (folder / "openssl.cnf").write_text("[req]\ndistinguished_name = name\n[name]\n")
    _openssl(folder, "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "accounts.key")
    _certificate(folder, "ca", "/CN=paddleflow-test-cluster", ["basicConstraints=critical,CA:true"], signed=False)
    both = "extendedKeyUsage=serverAuth,clientAuth"
    _certificate(folder, "apiserver", "/CN=kube-apiserver", [both, f"subjectAltName={','.join(_SERVER_NAMES)}"])
    _certificate(folder, "kubelet-client", "/O=system:masters/CN=kube-apiserver-kubelet-client", [both])
    _certificate(folder, "front-proxy", "/CN=front-proxy", [both])
    _certificate(folder, "webhooks", "/CN=webhooks", [both, f"subjectAltName=IP:{LOOPBACK},IP:{HUB}"])
    tokens = {who: secrets.token_urlsafe(24) for who in _USERS}
    rows = [f'{tokens[who]},{user},{who},"{group}"' for who, (user, group) in _USERS.items()]
    (folder / "tokens.csv").write_text("\n".join(rows) + "\n")
    for who, token in tokens.items():
        _kubeconfig(cluster, folder / f"{who}.kubeconfig", cluster.address, token)
    _kubeconfig(cluster, cluster.kubeconfig, LOOPBACK, tokens["admin"])


def admin_token(cluster: Cluster) -> str:
    return (cluster.folder / "keys" / "tokens.csv").read_text().partition(",")[0]


def _openssl(folder: Path, *words: str) -> None:
    done = subprocess.run(["openssl", *words], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"openssl {' '.join(words)}: {done.stderr.strip()}", "OpenSSL 3 is needed")


def _certificate(folder: Path, name: str, subject: str, extensions: list[str], signed: bool = True) -> None:
    _openssl(
        folder,
        *("req", "-config", "openssl.cnf", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
        *("-days", "3650", "-subj", subject, "-keyout", f"{name}.key", "-out", f"{name}.crt"),
        *(word for extension in extensions for word in ("-addext", extension)),
        *(("-CA", "ca.crt", "-CAkey", "ca.key") if signed else ()),
    )


def _kubeconfig(cluster: Cluster, file: Path, host: str, token: str) -> None:
    """One file that needs no other; JSON, which is YAML as well."""
    authority = base64.b64encode((cluster.folder / "keys" / "ca.crt").read_bytes()).decode()
    server = f"https://{host}:{cluster.port('api')}"
    file.touch(mode=0o600)
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": cluster.name, "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [{"name": cluster.name, "context": {"cluster": cluster.name, "user": "user"}}],
        "current-context": cluster.name,
    }
    file.write_text(json.dumps(document, indent=1))
