"""HTTP to one server: connections kept open, retries where they are safe, refusals raised as errors of `paddleflow.errors`.

Built on sockets because of start-up: the command line is to answer within 150 ms, and importing an HTTP library beside
click takes much of that (docs/decisions/0160-own-http-connection.md). There is no second way beside it.

Guarantees
- A request is sent again only if that cannot do harm: nothing had been sent (connection refused), or the request is
  idempotent and the connection broke or the server said 503. `settled` names the error that, met when trying again,
  means that the lost first try had been done.
- Every refusal raises the class of `paddleflow.errors` that the server raised, with code, hint, details and request id.
- A transport may be shared by threads: each exchange has its connection to itself.
"""

from __future__ import annotations

import json
import select
import socket
import time
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import quote, urlencode

from paddleflow import __version__
from paddleflow.base.values import dataclass
from paddleflow.errors import (
    BY_STATUS,
    HINT,
    Fault,
    Internal,
    Invalid,
    NotFound,
    PaddleFlowError,
    TooMany,
    Unauthenticated,
    Unavailable,
)
from paddleflow.sdk import address
from paddleflow.sdk.connection import Connection, Response

if TYPE_CHECKING:
    from paddleflow.sdk.websocket import WebSocket

API = "/api/paddleflow/v1"
IDEMPOTENT = frozenset({"GET", "PUT", "DELETE"})
START_HINT = "is the server running? start it with: paddleflow server"
LOGIN_HINT = "log in with: paddleflow login"
VARIABLE_HINT = "the variable PADDLEFLOW_TOKEN is used instead of the saved token: unset it, or set it to a valid one"
_LONGEST_PAUSE = 5.0

Query = Mapping[str, object]


class _Attempt(Exception):
    """One exchange that brought no answer."""

    def __init__(
        self, error: PaddleFlowError, *, reached: bool, doubt: bool = False, again: bool = False, after: float = 0.0
    ) -> None:
        super().__init__(error.message)
        self.error = error
        self.reached = reached  #: something was sent
        self.doubt = doubt  #: the server may have acted on it
        self.again = again  #: trying again may help
        self.after = after  #: seconds that the server asked to wait


class Stream:
    """An answer that is read while it grows. Chunks come as the server sends them; it ends when the server ends it."""

    def __init__(self, response: Response, sock: socket.socket) -> None:
        self._response = response
        self._sock = sock

    def header(self, name: str) -> str:
        return self._response.headers.get(name.lower(), "")

    def chunks(self, patience: Callable[[], float]) -> Iterator[bytes]:
        """What arrives; TimeoutError when nothing did for `patience()` seconds, Unavailable when the line broke."""
        while True:
            self._sock.settimeout(max(patience(), 0.001))
            try:
                chunk = self._response.read1(65536)
            except TimeoutError:
                raise
            except OSError as error:
                raise Unavailable(f"lost the connection while reading: {_words(error)}") from error
            if not chunk:
                return
            yield chunk


@dataclass(frozen=True)
class Patience:
    """How long a follower of events or logs waits, in seconds."""

    silence: float = 60.0  #: without a byte, after which the connection is made anew
    unreachable: float = 60.0  #: without any answer, after which following gives up


class Transport:
    """Requests to one server in the name of one user. `saved` gives the token that is saved by now."""

    def __init__(
        self,
        server: str,
        *,
        token: str = "",
        credentials: tuple[str, str] | None = None,
        saved: Callable[[], str] | None = None,
        login_hint: str = LOGIN_HINT,
        timeout: float = 60.0,
        retries: int = 3,
        sleep: Callable[[float], None] = time.sleep,
        patience: Patience = Patience(),  # noqa: B008  it never changes
    ) -> None:
        self.address = address.parse(server)
        self.proxy = address.proxy_of(self.address)
        self.token = token
        self.credentials = credentials
        self._saved = saved
        self._login_hint = login_hint
        self.timeout = timeout
        self.sleep = sleep
        self.patience = patience
        self._retries = retries
        self._idle: deque[Connection] = deque()

    def __reduce__(self) -> NoReturn:
        """Refused, since it would write the token into the pickle."""
        raise TypeError(
            "a client holds connections and a token and cannot be pickled: pass ids, and connect() there again"
        )

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def __del__(self) -> None:
        if hasattr(self, "_idle"):  # not so if the address was refused
            self.close()

    def login(self, username: str, password: str) -> str:
        """A token for `username`, used from now on."""
        found = self.call("POST", "/login", body={"username": username, "password": password}, anonymous=True)
        token = found.get("authorization") if isinstance(found, dict) else None
        if not isinstance(token, str) or not token:
            raise Unavailable(f"{self.address} answered the login without a token; is it a PaddleFlow server?")
        self.token = token
        return token

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: object = None,
        settled: type[PaddleFlowError] | None = None,
        anonymous: bool = False,
    ) -> object:
        """The decoded JSON answer; None for an empty one, and for a retried request that turned out to be done."""
        safe = method in IDEMPOTENT or settled is not None
        doubt = False
        tries = 0
        while True:
            try:
                return self._exchange(method, path, query, body, anonymous)
            except _Attempt as attempt:
                doubt = doubt or attempt.doubt
                allowed = attempt.again and (safe or not attempt.reached)
                if not allowed or tries == self._retries:
                    if attempt.doubt and not safe:
                        attempt.error.hint = "it is not known whether this was done: look before you try again"
                    raise attempt.error from attempt.__cause__
                self.sleep(min(max(0.1 * 3**tries, attempt.after), _LONGEST_PAUSE))
                tries += 1
            except PaddleFlowError as error:
                if doubt and settled is not None and isinstance(error, settled):
                    return None
                raise

    def send(self, method: str, path: str, content: bytes) -> object:
        """The answer to a body of bytes. Sent again as an idempotent request is: content is kept by its hash."""
        return self.call(method, path, body=content, settled=NotFound)

    @contextmanager
    def stream(self, path: str, *, query: Query | None = None) -> Iterator[Stream]:
        """An answer that grows. It is asked for once; whoever follows asks again from where it got to."""
        try:
            connection, response = self._answered("GET", path, query, None, anonymous=False, fresh=True)
        except _Attempt as attempt:
            raise attempt.error from attempt.__cause__
        try:
            yield Stream(response, connection.sock)
        finally:
            connection.close()

    def upgrade(self, path: str, *, query: Query | None = None) -> WebSocket:
        """A websocket of the server."""
        websocket = import_module("paddleflow.sdk.websocket")  # only `exec` needs it
        for fresh_token in (False, True):
            extra = websocket.upgrade_headers()
            try:
                connection, response = self._request("GET", path, query, None, self.token, True, extra)
            except _Attempt as failed:
                raise failed.error from failed
            if response.status == 101:
                opened: WebSocket = websocket.WebSocket(connection, response)
                return opened
            error = self._refusal(response, response.read())
            connection.close()
            if fresh_token or response.status != 401 or not self._renewed(self.token):
                raise error
        raise AssertionError("unreachable")

    def _exchange(self, method: str, path: str, query: Query | None, body: object, anonymous: bool) -> object:
        connection, response = self._answered(method, path, query, body, anonymous=anonymous, fresh=False)
        try:
            content = response.read()
        except OSError as error:
            connection.close()
            raise self._broken(error) from error
        if not response.will_close:
            self._idle.append(connection)
        return self._decoded(content)

    def _answered(
        self, method: str, path: str, query: Query | None, body: object, *, anonymous: bool, fresh: bool
    ) -> tuple[Connection, Response]:
        """A successful answer whose body is still to be read. Logs in where needed, and once more on a dead token."""
        if not anonymous and not self.token and self.credentials:
            self.login(*self.credentials)
        used = "" if anonymous else self.token
        found = self._request(method, path, query, body, used, fresh)
        if found[1].status == Unauthenticated.status and not anonymous and self._renewed(used):
            self._discard(found[0], found[1])
            found = self._request(method, path, query, body, self.token, fresh)
        connection, response = found
        if response.status >= 300:
            raise self._refusal(response, self._discard(connection, response))
        return found

    def _renewed(self, ended: str) -> bool:
        """A token in place of one that ended: from a login, or saved meanwhile by another login or the server's start."""
        if self.credentials:
            self.login(*self.credentials)
            return True
        saved = self._saved() if self._saved is not None else ""
        if not saved or saved == ended:
            return False
        self.token = saved
        return True

    def _request(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: object,
        token: str,
        fresh: bool,
        extra: Mapping[str, str] | None = None,
    ) -> tuple[Connection, Response]:
        raw = isinstance(body, bytes)
        payload = (
            body if isinstance(body, bytes) else None if body is None else json.dumps(body, ensure_ascii=False).encode()
        )
        headers = {
            "Host": self.address.authority,
            "Accept": "*/*",
            "User-Agent": f"paddleflow/{__version__}",
            **(extra or {}),
        }
        if payload is not None:
            headers["Content-Type"] = "application/octet-stream" if raw else "application/json"
        if token:
            headers["x-pf-authorization"] = token
        connection = self._connected(fresh)
        target = f"{self.address.prefix}{API}{path}{_query_text(query)}"
        if self.proxy is not None and not self.address.secure:  # a proxy of plain HTTP is asked for the whole URL
            target = f"{str(self.address).removesuffix(self.address.prefix)}{target}"
            headers |= _proxy_headers(self.proxy)
        try:
            return connection, connection.exchange(method, target, headers, payload)
        except TimeoutError as error:
            connection.close()
            late = Unavailable(f"{self.address} did not answer within {self.timeout:g} s", hint="it may be overloaded")
            raise _Attempt(late, reached=True, doubt=True) from error
        except OSError as error:
            connection.close()
            raise self._broken(error) from error

    def _connected(self, fresh: bool) -> Connection:
        while self._idle and not fresh:
            kept = self._idle.pop()
            # Readable while nothing was asked: the server has closed it, or it is out of step.
            if not select.select([kept.sock], [], [], 0)[0]:
                return kept
            kept.close()
        there = self.proxy or self.address
        tunnel = None
        if self.proxy is not None and self.address.secure:
            tunnel = (self.address.host, self.address.port, _proxy_headers(self.proxy))
        try:
            return Connection(there.host, there.port, timeout=self.timeout, secure=self.address.secure, tunnel=tunnel)
        except (OSError, UnicodeError) as error:  # the latter for a host that cannot be a name
            raise self._unreachable(error) from error

    def _unreachable(self, error: Exception) -> _Attempt:
        if type(error).__module__ == "ssl":
            hint = "does the server speak https there, with a certificate that this machine trusts?"
            return _Attempt(Unavailable(f"no secure connection to {self.address}: {error}", hint=hint), reached=False)
        if isinstance(error, socket.gaierror | UnicodeError):
            unknown = Unavailable(f"host {self.address.host} is not known: {_words(error)}", hint="check the address")
            return _Attempt(unknown, reached=False)
        if isinstance(error, TimeoutError):
            late = Unavailable(f"no connection to {self.address} within {self.timeout:g} s", hint="check the address")
            return _Attempt(late, reached=False)
        if self.proxy is not None:
            way = f"{self.address} through the proxy {self.proxy.host}:{self.proxy.port}"
            unreached = Unavailable(
                f"cannot reach {way}: {_words(error)}", hint="hosts in NO_PROXY are reached without the proxy"
            )
            return _Attempt(unreached, reached=False, again=True)
        refused = Unavailable(f"cannot reach {self.address}: {_words(error)}", hint=START_HINT)
        return _Attempt(refused, reached=False, again=True)

    def _broken(self, error: Exception) -> _Attempt:
        lost = Unavailable(f"{self.address} closed the connection before its answer was whole: {_words(error)}")
        return _Attempt(lost, reached=True, doubt=True, again=True)

    def _discard(self, connection: Connection, response: Response) -> bytes:
        """The body of a refusal; the connection goes, for a refused request may not have been read to its end."""
        try:
            return response.read(1 << 20)
        except OSError:
            return b""
        finally:
            connection.close()

    def _refusal(self, response: Response, content: bytes) -> Exception:
        error = refusal(response.status, response.reason, content, str(self.address), self._login_hint)
        error.request_id = error.request_id or response.headers.get("x-pf-request-id", "")
        if not isinstance(error, Unavailable):
            return error
        after = response.headers.get("retry-after", "")
        return _Attempt(error, reached=True, again=True, after=float(after) if after.isdigit() else 0.0)

    def _decoded(self, content: bytes) -> object:
        if not content.strip():
            return None
        try:
            found: object = json.loads(content)
        except ValueError as error:
            start = content[:80].decode("utf-8", "replace")
            raise Unavailable(f"{self.address} answered {start!r}, not JSON; is it a PaddleFlow server?") from error
        return found


def refusal(status: int, reason: str, content: bytes, server: str, login_hint: str = LOGIN_HINT) -> PaddleFlowError:
    """The error in an answer of status 300 or more, as the class that the server raised."""
    try:
        data = json.loads(content)
    except ValueError:
        data = None
    kind = BY_STATUS.get(status) or (Unavailable if status in {502, 504} else Internal if status >= 500 else Invalid)
    if not isinstance(data, dict) or "message" not in data:
        start = content[:200].decode("utf-8", "replace").strip()
        return kind(f"{server} answered {status} {reason}" + (f": {start}" if start else ""))
    details = data.get("details")
    error = kind(
        str(data["message"]).removesuffix(HINT.format(data.get("hint"))) or f"{server} answered {status} {reason}",
        code=str(data.get("code") or ""),
        hint=_hint(kind, str(data.get("code") or ""), str(data.get("hint") or ""), login_hint),
        details=[_fault(item) for item in details if isinstance(item, dict)] if isinstance(details, list) else (),
    )
    error.request_id = str(data.get("requestID") or "")
    return error


def _hint(kind: type[PaddleFlowError], code: str, given: str, login_hint: str) -> str:
    """The server's hint, but how to log in in words of this side: the server speaks of headers."""
    if kind is Unauthenticated and (not given or code in {"AuthWithoutToken", "AuthInvalidToken"}):
        return login_hint
    return given or ("wait a while before you try again" if kind is TooMany else "")


def _fault(item: Mapping[str, object]) -> Fault:
    return Fault(str(item.get("where") or ""), str(item.get("message") or ""), str(item.get("hint") or ""))


def _words(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return str(text)


def _proxy_headers(proxy: address.Proxy) -> dict[str, str]:
    if not proxy.credentials:
        return {}
    return {"Proxy-Authorization": "Basic " + b64encode(proxy.credentials.encode()).decode()}


def _query_text(query: Query | None) -> str:
    given = {key: value for key, value in (query or {}).items() if value is not None and value != ""}
    if not given:
        return ""
    pairs = {key: ("true" if value else "false") if isinstance(value, bool) else value for key, value in given.items()}
    return "?" + urlencode(pairs)


def segment(name: str) -> str:
    """A name as one part of a path. An empty one would address the whole collection: refused here."""
    if not name:
        raise Invalid("a name or id is empty", code="RequiredFieldEmpty")
    return quote(name, safe="")
