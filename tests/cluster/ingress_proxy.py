"""A small ingress controller: serves what the Ingress objects of a namespace say, over TLS, as the controllers do that people install.

Runs in a pod with the platform's image, whose service account may read Ingresses, Services and Secrets: ``python3 ingress_proxy.py NAMESPACE``.
The certificate is that of the host which the client names; a request goes to the service whose rule has its host and the longest
prefix of its path, at the port that the service has by that name. Hosts without a rule get a 404.
"""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import sys
import tempfile
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PORT = 8443
PIECE = 65536
HOP = {
    "connection",
    "keep-alive",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "host",
}  #: headers of one connection


def read(path: str) -> Any:
    request = urllib.request.Request(f"https://kubernetes.default.svc{path}")
    request.add_header("Authorization", f"Bearer {(ACCOUNT / 'token').read_text()}")
    with urllib.request.urlopen(request, context=ssl.create_default_context(cafile=ACCOUNT / "ca.crt")) as answer:
        return json.load(answer)


def certificate(namespace: str, secret: str) -> ssl.SSLContext:
    data = read(f"/api/v1/namespaces/{namespace}/secrets/{secret}")["data"]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("tls.crt", "tls.key"):
            (Path(folder) / name).write_bytes(base64.b64decode(data[name]))
        context.load_cert_chain(f"{folder}/tls.crt", f"{folder}/tls.key")
    return context


class Routes:
    """Of all Ingresses of a namespace, as they are now."""

    def __init__(self, namespace: str) -> None:
        self.contexts: dict[str, ssl.SSLContext] = {}
        self._backends: dict[str, list[tuple[str, str, int]]] = {}  # by host: prefix, service, port
        for each in read(f"/apis/networking.k8s.io/v1/namespaces/{namespace}/ingresses")["items"]:
            for tls in each["spec"].get("tls", ()):
                self.contexts |= dict.fromkeys(tls["hosts"], certificate(namespace, tls["secretName"]))
            for rule in each["spec"]["rules"]:
                for path in rule["http"]["paths"]:
                    service = path["backend"]["service"]
                    ports = read(f"/api/v1/namespaces/{namespace}/services/{service['name']}")["spec"]["ports"]
                    number = next(port["port"] for port in ports if port["name"] == service["port"]["name"])
                    name = f"{service['name']}.{namespace}"
                    self._backends.setdefault(rule["host"], []).append((path["path"], name, number))

    def backend(self, host: str, path: str) -> tuple[str, int] | None:
        fitting = [each for each in self._backends.get(host.partition(":")[0], ()) if path.startswith(each[0])]
        return max(fitting)[1:] if fitting else None


class Handler(BaseHTTPRequestHandler):
    routes: Routes

    def answer(self) -> None:
        found = self.routes.backend(self.headers["Host"], self.path)
        if found is None:
            self.send_error(404)
            return
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP}
        headers |= {"Host": self.headers["Host"], "X-Forwarded-Proto": "https"}
        behind = http.client.HTTPConnection(*found, timeout=60)
        behind.request(self.command, self.path, body, headers)
        answer = behind.getresponse()
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in HOP:
                self.send_header(name, value)
        self.end_headers()
        while piece := answer.read1(PIECE):
            self.wfile.write(piece)
            self.wfile.flush()
        behind.close()

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = answer  # noqa: N815  names that the base class asks for


def main(namespace: str) -> None:
    routes = Handler.routes = Routes(namespace)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> int | None:
        if name not in routes.contexts:
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        connection.context = routes.contexts[name]
        return None

    context.sni_callback = choose
    server = ThreadingHTTPServer(("", PORT), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    print("serves", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
