"""Whether a store can be reached with what was given, and if not, what failed: called before a storage is made.

The stages are those that a person would try by hand: the name, the port, the credentials, the bucket or folder, the
permission to list it. The answer comes within a bounded time even where the machine's resolver hangs: the work is done in a
thread that is left behind then, of which there are at most `MOST_CHECKS`, and `MOST_OF_ONE` of one owner: a server that answers
byte by byte keeps only the places of whoever named it.
"""

from __future__ import annotations

import enum
import queue
import socket
import threading
import time
from collections import Counter

from paddleflow.errors import Conflict, Forbidden, Invalid, NotFound, PaddleFlowError, TooMany
from paddleflow.objects.addresses import refuse_metadata_service
from paddleflow.objects.store import BAD_CREDENTIALS, NO_SUCH_BUCKET, NOT_SUPPORTED, Kind, ObjectStore
from paddleflow.objects.urls import NO_PROPERTIES, SCHEMES, Properties, check_properties, parse_url

SECONDS = 5.0  #: that a check may take
MOST_CHECKS = 32  #: under way at once
CODE = "ConnectivityFailed"
MOST_OF_ONE = 4
_places: Counter[str] = Counter()  #: threads under way, by owner
_lock = threading.Lock()


class Stage(enum.Enum):
    """What was tried when a check failed."""

    NAME = "name resolution"
    PORT = "port"
    CREDENTIALS = "credentials"
    PATH = "bucket or path"
    PERMISSION = "permission"
    CLIENT = "client of this machine"
    ANSWER = "answer"  #: the server answered something that is none of the others


class Unreachable(Invalid):
    """A store that cannot be used, and at which stage that was seen."""

    default_code = CODE

    def __init__(self, url: str, stage: Stage, why: str, hint: str = "") -> None:
        super().__init__(f"{url} cannot be used, {stage.value}: {why}", code=CODE, hint=hint)
        self.stage = stage


class _Attempt:
    """One check; `stage` says how far it has come."""

    def __init__(self, url: str, properties: Properties, deadline: float, owner: str) -> None:
        self.url, self.properties, self.deadline, self.owner = url, properties, deadline, owner
        self.stage = Stage.NAME
        self.result: queue.SimpleQueue[PaddleFlowError | None] = queue.SimpleQueue()

    def run(self) -> None:
        try:
            self._try_addresses()
            scheme = SCHEMES[parse_url(self.url).scheme]
            # a client that mounts and does not come back has not said that credentials are to blame
            self.stage = Stage.CREDENTIALS if scheme.native is None else Stage.ANSWER
            store = scheme.open(parse_url(self.url), self.properties)
            try:
                self._probe(store)
            finally:
                store.close()
            self.result.put(None)
        except PaddleFlowError as error:
            self.result.put(self._explain(error))
        except Exception as error:  # a driver's own: it must not leave the caller waiting
            self.result.put(Unreachable(self.url, self.stage, str(error)))
        finally:
            with _lock:
                _places.subtract([self.owner])
                _places[self.owner] or _places.pop(self.owner)

    def _try_addresses(self) -> None:
        """A server of several may be down: one that listens is enough."""
        url = parse_url(self.url)
        failed: Unreachable | None = None
        for host, port in SCHEMES[url.scheme].addresses(url, self.properties):
            try:
                self._connect(host, port)
                return
            except Unreachable as error:
                failed = error
        if failed is not None:
            raise failed

    def _connect(self, host: str, port: int) -> None:
        self.stage = Stage.NAME
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            hint = "see its spelling and this machine's name servers"
            raise Unreachable(self.url, Stage.NAME, f"{host} is not known ({error.strerror})", hint) from error
        self.stage = Stage.PORT
        why = ""
        for family, kind, protocol, _, address in found:
            try:
                with socket.socket(family, kind, protocol) as connection:
                    connection.settimeout(max(0.1, self.deadline - time.monotonic()))
                    connection.connect(address)
                    refuse_metadata_service(str(address[0]))
                return
            except OSError as error:
                why = "no answer" if isinstance(error, TimeoutError) else (error.strerror or str(error)).lower()
        hint = "see whether the server runs, and whether a firewall is between"
        raise Unreachable(self.url, Stage.PORT, f"nothing listens at {host} port {port}: {why}", hint)

    def _probe(self, store: ObjectStore) -> None:
        entry = store.stat("")
        self.stage = Stage.PATH
        if entry.kind is not Kind.FOLDER:
            raise Conflict(f"{store.name} is a {entry.kind.value}, not a folder")
        self.stage = Stage.PERMISSION
        next(store.list_entries(""), None)

    def _explain(self, error: PaddleFlowError) -> PaddleFlowError:
        match error:
            case Unreachable():
                return error
            case Forbidden(code=code):
                stage = Stage.CREDENTIALS if code == BAD_CREDENTIALS else Stage.PERMISSION
            case NotFound() | Conflict():
                stage = Stage.PATH
            case Invalid(code=code):
                if code not in (NO_SUCH_BUCKET, NOT_SUPPORTED):
                    return error  # what was given is wrong by itself
                stage = Stage.PATH if code == NO_SUCH_BUCKET else Stage.CLIENT
            case _:
                stage = Stage.ANSWER if self.stage is Stage.CREDENTIALS else self.stage
        return Unreachable(self.url, stage, error.message, error.hint)


def check(url: str, properties: Properties = NO_PROPERTIES, *, timeout: float = SECONDS, owner: str = "") -> None:
    """Whether the store of a URL can be read: `Unreachable` says at which stage not, within `timeout` seconds. Blocks.

    `Invalid` for a URL or properties that are wrong by themselves.
    """
    check_properties(parse_url(url).scheme, properties)
    with _lock:
        if _places[owner] >= MOST_OF_ONE or _places.total() >= MOST_CHECKS:
            whose = f"for {owner} " if _places[owner] >= MOST_OF_ONE and owner else ""
            raise TooMany(
                f"{_places[owner] if whose else _places.total()} stores are being tried {whose}already",
                code="TooManyRequests",
                hint="try again when they have answered; one that answers slowly takes up to a minute",
            )
        _places[owner] += 1
    attempt = _Attempt(url, properties, time.monotonic() + timeout, owner)
    threading.Thread(target=attempt.run, name="store-check", daemon=True).start()
    try:
        error = attempt.result.get(timeout=timeout)
    except queue.Empty:
        raise Unreachable(url, attempt.stage, f"no answer within {timeout:g} s") from None
    if error is not None:
        raise error
