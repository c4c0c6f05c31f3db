"""Webhooks that refuse pods, or do not answer, until their block ends. The API server asks them over the wire."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.cluster_fixture import LiveCluster
from tests.patience import eventually

PODS = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
VERDICT = "no pods on Sundays"


def in_force(cluster: LiveCluster, space: str, words: str) -> None:
    """Until the API server refuses pods: what it admits by is read in its own time."""
    probe = ("run", "probe", "--image=a:1", "--dry-run=server", "-n", space)
    eventually(lambda: words in cluster.refusal(*probe), f"pods are refused with {words!r}")


@contextmanager
def webhook(cluster: LiveCluster, space: str, url: str, words: str) -> Iterator[None]:
    authority = (cluster.kubeconfig.parent / "keys" / "ca.crt").read_bytes()
    manifest = json.dumps(
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": space},
            "webhooks": [
                {
                    "name": "pods.example.com",
                    "clientConfig": {"url": url, "caBundle": base64.b64encode(authority).decode()},
                    "rules": [PODS],
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": space}},
                    "admissionReviewVersions": ["v1"],
                    "sideEffects": "None",
                    "timeoutSeconds": 30,
                }
            ],
        }
    )
    cluster.apply(manifest)
    try:
        in_force(cluster, space, words)
        yield
    finally:
        cluster.kubectl("delete", "-f", "-", stdin=manifest)


class _Denies(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        verdict = {"uid": review["request"]["uid"], "allowed": False, "status": {"message": VERDICT}}
        body = json.dumps({"apiVersion": review["apiVersion"], "kind": review["kind"], "response": verdict}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def webhook_denies(cluster: LiveCluster, space: str) -> Iterator[None]:
    keys = cluster.kubeconfig.parent / "keys"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys / "webhooks.crt", keys / "webhooks.key")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Denies) as server, ExitStack() as stack:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        stack.callback(thread.join)
        stack.callback(server.shutdown)
        address = f"127.0.0.1:{server.server_port}"
        if cluster.nodes:  # its API server is in a network of its own
            address = stack.enter_context(cluster.reached_from_pods(server.server_port))
        with webhook(cluster, space, f"https://{address}/", VERDICT):
            yield


def webhook_away(cluster: LiveCluster, space: str) -> AbstractContextManager[None]:
    return webhook(cluster, space, "https://127.0.0.1:1/", "failed calling webhook")
