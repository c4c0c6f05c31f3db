"""Other servers on the same database: questions that only the engine of a cluster can answer are asked where it runs.

A route that says ``leader`` is answered by the server that holds the lease of the cluster in question. Every other server
forwards the request, with the caller's token, and passes the answer on as it comes. Guarantees:

* A request is forwarded once: one that was forwarded is answered where it arrives, whoever holds the lease by then.
* At most `MOST_FORWARDED` at a time; the other server must accept within `CONNECT_SECONDS` and begin its answer within
  `HEAD_SECONDS`.
* When nobody holds the lease, or its holder cannot be reached, the question is answered from the rows of the database; a
  route that cannot do so (``leader_only``) answers 503 and says which server is away.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import field
from urllib.parse import parse_qsl, urlsplit

from starlette.responses import StreamingResponse
from starlette.types import Scope

from paddleflow.base.clock import Clock
from paddleflow.base.values import dataclass
from paddleflow.errors import Unavailable
from paddleflow.store import servers
from paddleflow.store.database import Database, Tx
from paddleflow.store.servers import LeaseHolder

FORWARDED = b"x-pf-forwarded"  #: header that names the server which forwarded a request
MOST_FORWARDED = 64
CONNECT_SECONDS = 3.0
HEAD_SECONDS = 60.0
_MOST_HEAD = 64 * 1024
_CHUNK = 64 * 1024
#: Headers that go along, and those that come back.
_SENT = (b"x-pf-authorization", b"authorization", b"x-pf-request-id", b"last-event-id", b"accept", b"content-type")
_RETURNED = ("content-type", "x-pf-log-offset", "cache-control", "retry-after")


@dataclass(slots=True)
class Peers:
    """The other servers, as one of them sees them."""

    database: Database
    clock: Clock
    server: str  #: the id of this one
    default_cluster: str
    tls: Sequence[
        ssl.SSLContext
    ] = ()  #: for addresses that begin with https: another server passes one of these checks
    _slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MOST_FORWARDED))

    async def leader(self, question: str, path: Mapping[str, str], query: bytes) -> LeaseHolder | None:
        """The other server that must answer; None: this one. `question` is that of `Route.leader`."""
        job = path["id"] if question == "job" else _job_in(query) if question == "query" else ""
        holder = await self.database.read(_leader, job, self.default_cluster, self.clock.now())
        return None if holder is None or holder.server == self.server else holder

    async def holders(self, clusters: Iterable[str]) -> dict[LeaseHolder, set[str]]:
        """The other servers that run these clusters, each with those that it runs."""
        found: dict[LeaseHolder, set[str]] = {}
        for cluster, holder in await self.database.read(_holders, list(clusters), self.clock.now()):
            if holder.server != self.server:
                found.setdefault(holder, set()).add(cluster)
        return found

    async def ask(self, holder: LeaseHolder, scope: Scope, headers: Mapping[bytes, bytes]) -> object:
        """What another server answers to the same request without a body; `Unavailable` unless it answers with 200."""
        response = await self.forward(holder, scope, headers, b"")
        try:
            text = b"".join([bytes(part) async for part in response.body_iterator])  # type: ignore[arg-type]  # ours are bytes
        except (OSError, EOFError, ValueError) as error:
            raise _away(holder, error) from error
        if response.status_code != 200:
            raise _away(holder, ValueError(f"it answered {response.status_code}"))
        return await asyncio.to_thread(json.loads, text)

    async def forward(
        self, holder: LeaseHolder, scope: Scope, headers: Mapping[bytes, bytes], body: bytes
    ) -> StreamingResponse:
        """The answer of another server, as it comes; `Unavailable` when it cannot be reached."""
        if self._slots.locked():
            raise Unavailable(f"{MOST_FORWARDED} requests are forwarded already", hint="try again in a moment")
        await self._slots.acquire()
        try:
            reader, writer = await self._connect(holder)
        except BaseException:
            self._slots.release()
            raise
        try:
            writer.write(_request(scope, headers, body, urlsplit(holder.address).netloc, self.server))
            async with asyncio.timeout(HEAD_SECONDS):
                await writer.drain()
                status, given = _head(await reader.readuntil(b"\r\n\r\n"))
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:  # TimeoutError is an OSError
            self._close(writer)
            raise _away(holder, error) from error
        except BaseException:
            self._close(writer)
            raise
        kept = {name: given[name] for name in _RETURNED if name in given}
        return StreamingResponse(self._content(reader, writer, given), status, kept)

    async def _connect(self, holder: LeaseHolder) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        url = urlsplit(holder.address)
        secure = url.scheme == "https"
        host, port = url.hostname, url.port or (443 if secure else 80)
        refused: ssl.SSLCertVerificationError | None = None
        for context in (self.tls or [ssl.create_default_context()]) if secure else [None]:
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    return await asyncio.open_connection(host, port, limit=_MOST_HEAD, ssl=context)
            except ssl.SSLCertVerificationError as error:
                refused = refused or error
            except OSError as error:
                raise _away(holder, error) from error
        assert refused is not None, "every check has answered"
        raise _away(holder, refused) from refused

    async def _content(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, headers: Mapping[str, str]
    ) -> AsyncIterator[bytes]:
        """The body of an answer. One that breaks off raises, so that the client sees it break off as well."""
        try:
            if headers.get("transfer-encoding", "").lower() == "chunked":
                while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
                    yield await reader.readexactly(size)
                    await reader.readexactly(2)
            else:
                left = int(headers.get("content-length", "0"))
                while left:
                    part = await reader.read(min(left, _CHUNK))
                    if not part:
                        raise ConnectionResetError("the answer broke off")
                    left -= len(part)
                    yield part
        finally:
            self._close(writer)

    def _close(self, writer: asyncio.StreamWriter) -> None:
        self._slots.release()
        writer.close()


def _job_in(query: bytes) -> str:
    """``jobID`` of a query, in whatever capitals."""
    pairs = parse_qsl(query.decode("latin-1"), max_num_fields=100)
    return next((value for key, value in pairs if key.lower() == "jobid"), "")


def _leader(tx: Tx, job: str, default: str, now: float) -> LeaseHolder | None:
    cluster = servers.cluster_of_job(tx, job) if job else default
    return servers.holder_of(tx, f"engine:{cluster}", now) if cluster else None


def _holders(tx: Tx, clusters: Sequence[str], now: float) -> list[tuple[str, LeaseHolder]]:
    found = [(cluster, servers.holder_of(tx, f"engine:{cluster}", now)) for cluster in clusters]
    return [(cluster, holder) for cluster, holder in found if holder is not None]


def _request(scope: Scope, headers: Mapping[bytes, bytes], body: bytes, host: str, server: str) -> bytes:
    target: bytes = scope.get("raw_path") or scope["path"].encode()
    if scope["query_string"]:
        target += b"?" + scope["query_string"]
    lines = [b"%s %s HTTP/1.1" % (scope["method"].encode(), target), b"host: " + host.encode()]
    lines += [b"%s: %s" % (name, headers[name]) for name in _SENT if name in headers]
    lines += [b"%s: %s" % (FORWARDED, server.encode()), b"connection: close", b"content-length: %d" % len(body)]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _head(raw: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = raw.decode("latin-1").split("\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return int(first.split(" ")[1]), headers


def _away(holder: LeaseHolder, error: Exception) -> Unavailable:
    return Unavailable(
        f"server[{holder.server}] at {holder.address or 'an unknown address'} runs this cluster and does not answer: "
        f"{str(error) or type(error).__name__}",
        hint="try again in a moment; its jobs keep running",
    )
