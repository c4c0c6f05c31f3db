"""Credentials that change while a client runs, against a real TLS server on loopback; and the way there through a proxy."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddleflow.errors import Invalid, PaddleFlowError, Unavailable
from paddleflow.kube.config import from_kubeconfig
from paddleflow.kube.credentials import Credential, TokenFile
from paddleflow.kube.proxy import Proxy, bypasses, choose_proxy, read_proxy
from paddleflow.kube.transport import HttpTransport, Request, Response
from paddleflow.settings import KubernetesEnvironment

GET = Request("GET", "/version")
V1 = "client.authentication.k8s.io/v1"
#: prints the credential of the file that it is given, and notes each run with what it was given
PLUGIN = """#!{python}
import json, os, sys
answer, runs = sys.argv[1:3]
with open(runs, "a") as file:
    asked = sys.stdin.read()
    file.write(json.dumps([json.loads(os.environ["KUBERNETES_EXEC_INFO"]), os.environ.get("EXTRA"), asked]) + "\\n")
sys.stdout.write(open(answer).read())
"""


@dataclass
class Keys:
    """A certificate authority with one server and one client certificate."""

    folder: Path

    def make(self, name: str, *extensions: str, signed: bool = True) -> None:
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        command += ["-days", "2", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.crt"]
        command += [word for each in extensions for word in ("-addext", each)]
        command += ["-CA", "ca.crt", "-CAkey", "ca.key"] if signed else []
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True)

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    found = Keys(tmp_path_factory.mktemp("keys"))
    found.make("ca", signed=False)
    found.make("server", "subjectAltName=IP:127.0.0.1,DNS:api.example")
    found.make("someone", "extendedKeyUsage=clientAuth")
    return found


@dataclass
class ApiServer:
    """Answers 200 with who asked, or 401."""

    accepted: set[str] = field(default_factory=set)
    port: int = 0
    requests: int = 0
    connections: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        certificate = writer.get_extra_info("peercert") or {}
        names = [value for part in certificate.get("subject", ()) for name, value in part if name == "commonName"]
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.requests += 1
                token = head.partition(b"Authorization: Bearer ")[2].partition(b"\r\n")[0].decode()
                user = names[0] if names else token if token in self.accepted else ""
                body = json.dumps({"user": user}).encode()
                status = "200 OK" if user else "401 Unauthorized"
                writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()


@pytest.fixture
async def server(keys: Keys) -> AsyncIterator[ApiServer]:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(keys.folder / "ca.crt"))
    tls.verify_flags &= ~ssl.VERIFY_X509_STRICT  # set by Python 3.13; these certificates are plain ones
    tls.load_cert_chain(keys.folder / "server.crt", keys.folder / "server.key")
    tls.verify_mode = ssl.CERT_OPTIONAL
    found = ApiServer()
    async with await asyncio.start_server(found.serve, "127.0.0.1", 0, ssl=tls) as listener:
        found.port = listener.sockets[0].getsockname()[1]
        yield found


@dataclass
class Plugin:
    """A kubeconfig whose user is an exec plugin, and what the plugin prints."""

    folder: Path
    keys: Keys
    server: ApiServer
    entry: dict[str, Any] = field(default_factory=dict)
    cluster: dict[str, Any] = field(default_factory=dict)

    def prints(self, status: Mapping[str, Any] | None, **fields: Any) -> None:
        document = {"apiVersion": V1, "kind": "ExecCredential", **fields}
        (self.folder / "answer").write_text(
            json.dumps({**document, "status": status} if status is not None else document)
        )

    def kubeconfig(self) -> Path:
        script = self.folder / "plugin"
        script.write_text(PLUGIN.format(python=sys.executable))
        script.chmod(0o755)
        entry = {
            "apiVersion": V1,
            "command": "./plugin",
            "args": [str(self.folder / "answer"), str(self.folder / "runs")],
            "interactiveMode": "IfAvailable",
            **self.entry,
        }
        ca = base64.b64encode(self.keys.text("ca.crt").encode()).decode()
        cluster = {"server": f"https://127.0.0.1:{self.server.port}", "certificate-authority-data": ca, **self.cluster}
        document = {
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"exec": entry}}],
            "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "here",
        }
        file = self.folder / "config"
        file.write_text(yaml.safe_dump(document))
        return file

    @property
    def runs(self) -> list[Any]:
        file = self.folder / "runs"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    @asynccontextmanager
    async def client(self) -> AsyncIterator[HttpTransport]:
        transport = HttpTransport(from_kubeconfig(self.kubeconfig()))
        try:
            async with asyncio.timeout(60):
                yield transport
        finally:
            await transport.close()

    async def failure(self) -> PaddleFlowError:
        with pytest.raises(PaddleFlowError) as caught:
            async with self.client() as client:
                await client.send(GET)
        return caught.value


@pytest.fixture
def plugin(tmp_path: Path, keys: Keys, server: ApiServer) -> Plugin:
    return Plugin(tmp_path, keys, server)


async def test_a_plugin_runs_once_for_many_requests(plugin: Plugin, server: ApiServer) -> None:
    plugin.prints({"token": "one"})
    server.accepted = {"one"}
    async with plugin.client() as client:
        answers = await asyncio.gather(*(client.send(GET) for _ in range(5)))
    assert {answer.status for answer in answers} == {200}
    assert len(plugin.runs) == 1


async def test_what_a_plugin_is_given(plugin: Plugin, server: ApiServer) -> None:
    plugin.entry = {"provideClusterInfo": True, "env": [{"name": "EXTRA", "value": "more"}]}
    plugin.cluster = {"extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}]}
    plugin.prints({"token": "one"})
    server.accepted = {"one"}
    async with plugin.client() as client:
        await client.send(GET)
    ((info, extra, standard_input),) = plugin.runs
    assert (info["apiVersion"], info["kind"], info["spec"]["interactive"]) == (V1, "ExecCredential", False)
    assert info["spec"]["cluster"]["server"].endswith(str(server.port))
    assert info["spec"]["cluster"]["config"] == {"audience": "a"}
    assert (extra, standard_input) == ("more", "")


async def test_a_rejected_token_is_replaced_and_the_request_sent_again(plugin: Plugin, server: ApiServer) -> None:
    plugin.prints({"token": "one"})
    server.accepted = {"one"}
    async with plugin.client() as client:
        assert (await client.send(GET)).status == 200
        server.accepted = {"two"}
        plugin.prints({"token": "two"})
        assert (await client.send(GET)).status == 200
        assert len(plugin.runs) == 2
        server.accepted = {"three"}
        parts = [part async for part in client.stream(GET, 5.0)]
        assert isinstance(parts[0], Response)
        assert parts[0].status == 401, "a plugin without a better answer is asked once, not for ever"
        assert len(plugin.runs) == 3
        plugin.prints({"token": "three"})
        parts = [part async for part in client.stream(GET, 5.0)]
        assert isinstance(parts[0], Response)
        assert parts[0].status == 200


async def test_a_credential_is_kept_until_it_expires(plugin: Plugin, server: ApiServer) -> None:
    server.accepted = {"one", "two"}
    later = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600))
    plugin.prints({"token": "one", "expirationTimestamp": later})
    async with plugin.client() as client:
        for _ in range(3):
            await client.send(GET)
        assert len(plugin.runs) == 1
    plugin.prints({"token": "two", "expirationTimestamp": "2020-01-01T00:00:00Z"})
    async with plugin.client() as client:
        await client.send(GET)
        await client.send(GET)
        assert len(plugin.runs) == 3, "an expired credential is never used twice"


async def test_a_plugin_may_print_a_client_certificate(plugin: Plugin, keys: Keys) -> None:
    plugin.prints({"clientCertificateData": keys.text("someone.crt"), "clientKeyData": keys.text("someone.key")})
    async with plugin.client() as client:
        assert json.loads((await client.send(GET)).body) == {"user": "someone"}
        assert json.loads((await client.send(GET)).body) == {"user": "someone"}
    assert len(plugin.runs) == 1


async def test_a_missing_plugin_is_named_with_its_hint(plugin: Plugin) -> None:
    plugin.entry = {"command": "no-such-plugin", "installHint": "Install it\nfrom the cloud's page."}
    error = await plugin.failure()
    assert isinstance(error, Invalid)
    assert "credential plugin no-such-plugin of user u: no such program" in error.message
    assert error.hint == "Install it from the cloud's page."


@pytest.mark.parametrize(
    ("status", "fields", "words"),
    [
        (None, {}, "not an ExecCredential with a status"),
        ({}, {}, "neither a token nor a client certificate"),
        ({"clientCertificateData": "x"}, {}, "belong together"),
        ({"clientCertificateData": "x", "clientKeyData": "y"}, {}, "cannot be used"),
        ({"token": "t", "expirationTimestamp": "tomorrow"}, {}, "not an ExecCredential"),
        ({"token": "t"}, {"apiVersion": "client.authentication.k8s.io/v1beta1"}, "printed apiVersion"),
    ],
)
async def test_what_a_plugin_prints_wrongly_is_named(
    plugin: Plugin, status: dict[str, str] | None, fields: dict[str, str], words: str
) -> None:
    plugin.prints(status, **fields)
    error = await plugin.failure()
    assert isinstance(error, Unavailable)
    assert words in error.message


async def test_a_plugin_that_fails_or_hangs_is_named_with_its_last_words(plugin: Plugin) -> None:
    plugin.entry = {"command": "sh", "args": ["-c", "echo not logged in >&2; exit 3"], "installHint": "run login"}
    error = await plugin.failure()
    assert "exit code 3: not logged in" in error.message
    assert error.hint == "run login"


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "v1alpha1' is not supported"),
        ({"command": ""}, "command is missing"),
        ({"interactiveMode": "Always"}, "wants a terminal"),
    ],
)
def test_plugins_that_cannot_be_run_are_refused_at_once(plugin: Plugin, entry: dict[str, str], words: str) -> None:
    plugin.entry = entry
    with pytest.raises(Invalid, match=words):
        from_kubeconfig(plugin.kubeconfig())


async def test_a_token_file_is_read_again_after_a_while_and_when_it_is_rejected(tmp_path: Path) -> None:
    now = 0.0
    file = tmp_path / "token"
    file.write_text("one\n")
    source = TokenFile(file, lambda: now)
    one = await source.get()
    file.write_text("two")
    assert (await source.get()).token == "one"
    now = 61.0
    assert (await source.get()).token == "two"
    file.write_text("three")
    assert source.reject(await source.get())
    assert (await source.get()).token == "three"
    assert not source.reject(await source.get()), "the file has nothing better"
    assert source.reject(one), "an old one says nothing about the one there is"
    file.unlink()
    now = 200.0
    assert (await source.get()).token == "three"


def test_credentials_are_not_shown() -> None:
    assert "secret" not in repr(Credential("secret"))
    assert "c2VjcmV0" not in repr(Proxy("h", 1, "Basic c2VjcmV0"))


# ---- proxies


@dataclass
class ConnectProxy:
    """Opens tunnels to the one server, whatever the name that is asked for."""

    target: int
    port: int = 0
    status: str = "200 Connection established"
    heads: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(f"HTTP/1.1 {self.status}\r\n\r\n".encode())
        if not self.status.startswith("200"):
            writer.close()
            return
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self.target)
        await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
    except ConnectionError:
        return
    finally:
        writer.close()


@pytest.fixture
async def proxy(server: ApiServer) -> AsyncIterator[ConnectProxy]:
    found = ConnectProxy(server.port)
    async with await asyncio.start_server(found.serve, "127.0.0.1", 0) as listener:
        found.port = listener.sockets[0].getsockname()[1]
        yield found


async def test_requests_and_watches_go_through_the_proxy_of_the_kubeconfig(
    plugin: Plugin, server: ApiServer, proxy: ConnectProxy
) -> None:
    plugin.prints({"token": "one"})
    server.accepted = {"one"}
    plugin.cluster = {"server": "https://api.example", "proxy-url": f"http://me:p%40ss@127.0.0.1:{proxy.port}"}
    async with plugin.client() as client:
        assert (await client.send(GET)).status == 200
    async with plugin.client() as client:
        parts = [part async for part in client.stream(GET, 5.0)]
        assert isinstance(parts[0], Response)
        assert parts[0].status == 200
    assert [head.splitlines()[0] for head in proxy.heads] == ["CONNECT api.example:443 HTTP/1.1"] * 2
    assert f"Proxy-Authorization: Basic {base64.b64encode(b'me:p@ss').decode()}" in proxy.heads[0]


async def test_a_proxy_that_refuses_is_named(plugin: Plugin, proxy: ConnectProxy) -> None:
    plugin.prints({"token": "one"})
    plugin.cluster = {"server": "https://api.example", "proxy-url": f"http://127.0.0.1:{proxy.port}"}
    proxy.status = "407 Proxy Authentication Required"
    error = await plugin.failure()
    assert f"proxy 127.0.0.1:{proxy.port} refused CONNECT api.example:443: HTTP/1.1 407" in error.message


def test_the_environment_names_the_proxy() -> None:
    environment = KubernetesEnvironment(https_proxy="http://p:3128", http_proxy="q", no_proxy=".internal,10.0.0.0/8")
    assert choose_proxy(environment, "api.example", 443, secure=True) == Proxy("p", 3128)
    assert choose_proxy(environment, "api.example", 80, secure=False) == Proxy("q", 80)
    assert choose_proxy(environment, "api.internal", 443, secure=True) is None
    assert choose_proxy(environment, "10.96.0.1", 443, secure=True) is None
    assert choose_proxy(KubernetesEnvironment(), "api.example", 443, secure=True) is None


@pytest.mark.parametrize(
    ("no_proxy", "host", "bypassed"),
    [
        ("", "localhost", True),
        ("", "127.0.0.3", True),
        ("", "::1", True),
        ("", "h.example", False),
        ("*", "h.example", True),
        ("example", "h.example", True),
        ("example", "example", True),
        ("example", "anexample", False),
        (".example", "h.example", True),
        (".example", "example", False),
        ("*.example", "h.example", True),
        ("H.Example", "h.example.", True),
        ("h.example:6443", "h.example", True),
        ("h.example:443", "h.example", False),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("fd00::/8", "fd00::1", True),
        ("a,, b ,10.1.2.3:6443", "10.1.2.3", True),
    ],
)
def test_no_proxy_names_hosts_that_are_reached_directly(no_proxy: str, host: str, bypassed: bool) -> None:
    assert bypasses(no_proxy, host, 6443) is bypassed


@pytest.mark.parametrize("url", ["socks5://h:1", "https://h", "http://", "http://h:x"])
def test_proxies_that_cannot_be_used_are_refused(url: str) -> None:
    with pytest.raises(Invalid, match="HTTPS_PROXY"):
        read_proxy(url, "HTTPS_PROXY")
