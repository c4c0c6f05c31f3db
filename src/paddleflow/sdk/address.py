"""Server addresses as people write them: ``host``, ``host:port``, ``http://host:port/prefix``."""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from paddleflow import environment
from paddleflow.base.values import dataclass
from paddleflow.errors import Invalid

DEFAULT_PORT = 8999
DEFAULT_SERVER = f"http://127.0.0.1:{DEFAULT_PORT}"


@dataclass(frozen=True)
class Address:
    """Where a server is."""

    secure: bool
    host: str
    port: int
    prefix: str = ""

    def __str__(self) -> str:
        return f"{'https' if self.secure else 'http'}://{self._host}:{self.port}{self.prefix}"

    @property
    def authority(self) -> str:
        """What the header Host says: the port only where it is not that of the scheme."""
        return self._host if self.port == (443 if self.secure else 80) else f"{self._host}:{self.port}"

    @property
    def _host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def parse(server: str) -> Address:
    """The address in `server`. Without a scheme the platform's own port is meant, with one the scheme's port."""
    text = server.strip()
    plain = "://" not in text
    try:
        parts = urlsplit(f"http://{text}" if plain else text)
        port = parts.port
    except ValueError as error:
        raise _refused(server) from error
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment or parts.username:
        raise _refused(server)
    if port is None:
        port = DEFAULT_PORT if plain else {"http": 80, "https": 443}[parts.scheme]
    return Address(parts.scheme == "https", parts.hostname, port, parts.path.rstrip("/"))


@dataclass(frozen=True)
class Proxy:
    """An HTTP proxy, with the credentials that its URL names."""

    host: str
    port: int
    credentials: str = ""  #: user:password


def proxy_of(address: Address) -> Proxy | None:
    """The proxy of the environment for a server. Loopback and hosts of NO_PROXY are always reached directly."""
    plain, secure, bypassed = environment.proxy_environment()
    url = secure if address.secure else plain
    if not url or _bypassed(address, bypassed):
        return None
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port or 80
    except ValueError:
        parts, port = urlsplit(""), 0
    if parts.scheme != "http" or not parts.hostname:
        name = "HTTPS_PROXY" if address.secure else "HTTP_PROXY"
        raise Invalid(f"{name} is {url!r}, which is not of the form http://host:port", code="InvalidURI")
    credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}" if parts.username else ""
    return Proxy(parts.hostname, port, credentials)


def _bypassed(address: Address, patterns: str) -> bool:
    host = address.host.lower()
    if host in {"localhost", "::1"} or host.startswith("127."):
        return True
    for pattern in (part.strip().lower() for part in patterns.split(",")):
        name, _, port = pattern.partition(":") if pattern.count(":") == 1 else (pattern, "", "")
        if port and port != str(address.port):
            continue
        suffix = name.removeprefix("*").removeprefix(".")
        if name == "*" or (suffix and (host == suffix or host.endswith(f".{suffix}"))):
            return True
    return False


def _refused(server: str) -> Invalid:
    return Invalid(
        f"server address {server!r} is not of the form host, host:port or http://host:port",
        code="InvalidURI",
        hint=f"for example {DEFAULT_SERVER}",
    )
