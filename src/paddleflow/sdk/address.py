"""Server addresses as people write them: ``host``, ``host:port``, ``http://host:port/prefix``."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

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
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}{self.prefix}"


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


def _refused(server: str) -> Invalid:
    return Invalid(
        f"server address {server!r} is not of the form host, host:port or http://host:port",
        code="InvalidURI",
        hint=f"for example {DEFAULT_SERVER}",
    )
