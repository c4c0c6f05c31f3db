"""Which HTTP proxy a connection to an API server goes through, and how it is asked for a tunnel.

As kubectl does it: `proxy-url` of the kubeconfig's cluster, else HTTPS_PROXY (HTTP_PROXY for an http server) unless NO_PROXY
names the host; loopback addresses are never sent to a proxy of the environment.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import socket
from dataclasses import field
from urllib.parse import unquote, urlsplit

from paddleflow.base.values import dataclass
from paddleflow.errors import Invalid
from paddleflow.settings import KubernetesEnvironment

_MOST_HEAD = 1 << 16  #: bytes of a proxy's answer


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy that opens tunnels (CONNECT)."""

    host: str
    port: int
    authorization: str = field(default="", repr=False)  #: value of Proxy-Authorization; empty: none

    def __str__(self) -> str:
        return f"proxy {self.host}:{self.port}"


def read_proxy(url: str, source: str) -> Proxy:
    """The proxy that an address names; `source` says where the address was found."""
    parts = urlsplit(url if "://" in url else f"http://{url}")
    shown = f"{parts.scheme}://{parts.hostname or ''}"  # without a password
    if parts.scheme != "http":
        raise Invalid(
            f"{source}: {shown}: proxies of type {parts.scheme} are not supported", hint="use an http:// proxy"
        )
    try:
        port = parts.port or 80
    except ValueError as error:
        raise Invalid(f"{source}: {shown}: {error}") from error
    if not parts.hostname:
        raise Invalid(f"{source}: {shown} is not the address of a proxy", hint="as in http://proxy.example:3128")
    authorization = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(pair.encode()).decode()
    return Proxy(parts.hostname, port, authorization)


def choose_proxy(environment: KubernetesEnvironment, host: str, port: int, *, secure: bool) -> Proxy | None:
    """The proxy that the environment names for a server."""
    name, url = ("HTTPS_PROXY", environment.https_proxy) if secure else ("HTTP_PROXY", environment.http_proxy)
    if not url or bypasses(environment.no_proxy, host, port):
        return None
    return read_proxy(url, name)


def bypasses(no_proxy: str, host: str, port: int) -> bool:
    """Whether NO_PROXY, or being on this machine, keeps a host from the proxy. Entries: ``*``, a name (with all below it),
    ``.name`` (only those below it), an address, a network (10.0.0.0/8); each may end in a port."""
    host = host.lower().rstrip(".")
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    for entry in (part.strip().lower() for part in no_proxy.split(",")):
        if entry == "*" or _matches(entry, host, port, address):
            return True
    return False


def _matches(entry: str, host: str, port: int, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> bool:
    if not entry:
        return False
    try:
        network = ipaddress.ip_network(entry.strip("[]"), strict=False)
    except ValueError:
        network = None
    if network is not None:
        return address is not None and address in network
    name, colon, wanted = entry.rpartition(":")
    if colon and wanted.isdecimal():
        return int(wanted) == port and _matches(name, host, port, address)
    if entry.startswith("*."):
        entry = entry[1:]
    return host.endswith(entry) if entry.startswith(".") else host == entry or host.endswith(f".{entry}")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


async def open_tunnel(proxy: Proxy, host: str, port: int) -> socket.socket:
    """A connected socket whose other end is `host`; `OSError` when the proxy does not open the tunnel."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(proxy.host, proxy.port, type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = found[0]
    tunnel = socket.socket(family, kind, protocol)
    try:
        tunnel.setblocking(False)
        await loop.sock_connect(tunnel, address)
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        credentials = f"Proxy-Authorization: {proxy.authorization}\r\n" if proxy.authorization else ""
        await loop.sock_sendall(tunnel, f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{credentials}\r\n".encode())
        head = b""
        while b"\r\n\r\n" not in head:
            # A server never speaks before its client in TLS and HTTP: nothing follows the head that could be lost.
            part = await loop.sock_recv(tunnel, 4096)
            if not part or len(head) > _MOST_HEAD:
                raise ConnectionError(f"{proxy} closed the connection before it answered CONNECT")
            head += part
        line = head.split(b"\r\n", 1)[0].decode("latin-1")
        words = line.split(" ", 2)
        if len(words) < 2 or not words[1].startswith("2"):
            raise ConnectionError(f"{proxy} refused CONNECT {target}: {line[:200]}")
    except BaseException:
        tunnel.close()
        raise
    return tunnel
