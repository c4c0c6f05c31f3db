"""A storage of a server as a store: every request goes to the server's file service, with a token for this one storage.

Whoever mounts a storage this way needs no key of the store behind it, and reaches that store through the server alone. The token
runs out soon; while the store is open a thread renews it, which also tells the server that the mount lives. When the server ends the
mount, or takes the grant back, every request is `Forbidden`.

The service keeps no metadata. Whether a conditional replacement has no window is the matter of the store behind it, so that
`capabilities` does not promise it.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from typing import BinaryIO
from urllib.parse import quote, urlencode

from paddleflow.base.values import dataclass
from paddleflow.errors import BY_STATUS, Conflict, Invalid, NotFound, PaddleFlowError, Unavailable
from paddleflow.objects.connections import Answer, Connections
from paddleflow.objects.store import (
    CHANGED,
    Capabilities,
    Entry,
    Kind,
    changed,
    check_folder_key,
    check_key,
    check_range,
    copy_through_this_machine,
    is_below,
    not_a_file,
    not_a_folder,
    not_supported,
    refuse_metadata,
    shorten,
)

PREFIX = "/api/paddleflow/v1"
PART = 8 * 2**20  #: bytes that are sent at once
RENEW = 60.0  #: seconds between two renewals of the token
_MOST_ANSWER = 4 * 2**20
_KINDS = {kind.value: kind for kind in Kind}


@dataclass(frozen=True, slots=True)
class ServedStorage:
    """Which storage of which server, and by what right."""

    host: str
    port: int
    storage: str  #: id
    mount: str  #: id
    token: str = field(repr=False)
    prefix: str = ""  #: of the server's paths
    tls: bool = False
    verify: bool = True
    keep: bool = False  #: closing leaves the mount at the server, for whoever opens it next


class ServedStore:
    """`ObjectStore` over the routes ``/fs/{storage}/…``."""

    capabilities = Capabilities(atomic_rename=False, if_absent=True)

    def __init__(self, place: ServedStorage) -> None:
        self.name = f"pfs://{place.host}:{place.port}/{place.storage}"
        self._place = place
        self._base = f"{place.prefix}{PREFIX}/fs/{quote(place.storage, safe='')}"
        self._connections = Connections(place.host, place.port, tls=place.tls, verify=place.verify)
        self._headers = {"x-pf-authorization": place.token, "accept": "application/json"}
        self._closed = threading.Event()
        self._renewal: threading.Thread | None = None
        self._lock = threading.Lock()

    # ---- requests ----

    def _ask(
        self, method: str, path: str, query: Mapping[str, str | int], body: bytes = b"", *, most: int = _MOST_ANSWER
    ) -> Answer:
        self._keep_alive()
        target = f"{self._base}{path}" + (f"?{urlencode(query)}" if query else "")
        answer = self._connections.request(method, target, self._headers, body, most=most, large=most > _MOST_ANSWER)
        if answer.status >= 400:
            raise _refusal(answer)
        return answer

    def _document(self, method: str, path: str, query: Mapping[str, str | int], body: bytes = b"") -> dict[str, object]:
        answer = self._ask(method, path, query, body)
        try:
            found = json.loads(answer.body) if answer.body else {}
        except ValueError as error:
            raise Unavailable(f"{self.name} answered something else than JSON") from error
        return found if isinstance(found, dict) else {}

    def _keep_alive(self) -> None:
        """A worker that replaces another one has no thread yet: the first request starts it."""
        with self._lock:
            if self._renewal is None and not self._closed.is_set():
                self._renewal = threading.Thread(target=self._renew, name="renewal", daemon=True)
                self._renewal.start()

    def _renew(self) -> None:
        target = f"{self._base}/mounts/{self._place.mount}"
        while not self._closed.wait(RENEW):
            try:
                self._connections.request("PUT", target, self._headers, b"{}", most=_MOST_ANSWER)
            except PaddleFlowError:
                continue  # the server is away; the token outlives that for a while

    # ---- the interface ----

    def stat(self, key: str) -> Entry:
        wanted = check_folder_key(key)
        entry = _entry(self._document("GET", "/stat", {"path": wanted}))
        if key.endswith("/") and entry.kind is not Kind.FOLDER:
            raise NotFound(f"{shorten(key)} in {self.name} is not a folder")
        return entry

    def list_entries(self, folder: str = "", *, recursive: bool = False) -> Iterator[Entry]:
        pending = [check_folder_key(folder)]
        while pending:
            current, marker = pending.pop(), ""
            while True:
                query = {"path": current} | ({"marker": marker} if marker else {})
                try:
                    page = self._document("GET", "/files", query)
                except NotFound:
                    break
                found = page.get("files")
                for each in found if isinstance(found, list) else ():
                    entry = _entry(each)
                    if not is_below(entry.key, f"{current}/" if current else ""):
                        continue  # whatever its server says
                    if recursive and entry.kind is Kind.FOLDER:
                        pending.append(entry.key)
                    else:
                        yield entry
                marker = str(page.get("nextMarker") or "")
                if not marker:
                    break

    def read(self, key: str, *, size: int, offset: int = 0, tag: str = "") -> bytes:
        check_range(offset, size)
        query: dict[str, str | int] = {"path": check_key(key), "offset": offset, "size": size}
        if tag:
            query["tag"] = tag
        answer = self._ask("GET", "/content", query, most=max(size, _MOST_ANSWER))
        wanted = int(answer.headers.get("content-length", len(answer.body)))
        if len(answer.body) != wanted:
            raise Unavailable(f"{shorten(key)} in {self.name} ended after {len(answer.body)} of {wanted} bytes")
        return answer.body

    def write(
        self,
        key: str,
        content: bytes | BinaryIO,
        *,
        metadata: Mapping[str, str] | None = None,
        if_absent: bool = False,
        if_tag: str = "",
    ) -> Entry:
        check_key(key)
        refuse_metadata(self.name, metadata)
        condition = ({"ifAbsent": "true"} if if_absent else {}) | ({"ifTag": if_tag} if if_tag else {})
        first = content[:PART] if isinstance(content, bytes) else _read_full(content)
        if len(first) < PART:
            return _entry(self._document("PUT", "/content", _sent(key, first) | condition, first))
        upload = str(self._document("POST", "/uploads", {"path": key})["uploadID"])
        path = f"/uploads/{quote(upload, safe='')}"
        number, piece = 1, first
        while piece:
            self._ask("PUT", path, _sent("", piece) | {"part": number}, piece)
            at = number * PART
            piece = content[at : at + PART] if isinstance(content, bytes) else _read_full(content)
            number += 1
        try:
            return _entry(self._document("POST", path, {"path": key} | condition))
        except Conflict:
            self._ask("DELETE", path, {})
            raise

    def remove(self, key: str) -> None:
        try:
            if self.stat(check_key(key)).kind is Kind.FOLDER:
                raise not_a_file(self.name, key)
            self._ask("DELETE", "/files", {"path": key})
        except NotFound:
            return

    def make_folder(self, key: str, *, metadata: Mapping[str, str] | None = None) -> None:
        refuse_metadata(self.name, metadata)
        if key := check_folder_key(key):
            self._ask("POST", "/folders", {"path": key})

    def remove_folder(self, key: str) -> None:
        key = check_folder_key(key)
        try:
            if self.stat(key).kind is not Kind.FOLDER:
                raise not_a_folder(self.name, key)
            self._ask("DELETE", "/files", {"path": key})
        except NotFound:
            return

    def copy(self, source: str, target: str) -> Entry:
        return copy_through_this_machine(self, source, target)

    def rename(self, source: str, target: str) -> Entry:
        check_key(source), check_key(target)
        return _entry(self._document("POST", "/rename", {"path": source, "target": target}))

    def set_metadata(self, key: str, metadata: Mapping[str, str]) -> Entry:
        raise not_supported(self.name, "keep metadata")

    def close(self) -> None:
        """The mount ends; the server is told, so that the storage is free at once."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._renewal is not None and not self._place.keep:
            self.end_mount()
        self._connections.close()

    def end_mount(self) -> None:
        """Give the mount back: its token counts no more. A server that is away finds out when nothing renews it."""
        with suppress(PaddleFlowError):
            target = f"{self._base}/mounts/{self._place.mount}"
            self._connections.request("DELETE", target, self._headers, most=_MOST_ANSWER)


def _sent(path: str, content: bytes) -> dict[str, str | int]:
    found: dict[str, str | int] = {"sha256": hashlib.sha256(content).hexdigest()}
    return found | ({"path": path} if path else {})


def _read_full(content: BinaryIO) -> bytes:
    """The next part of a stream; shorter only at its end."""
    pieces, size = [], 0
    while size < PART and (piece := content.read(PART - size)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def _entry(found: object) -> Entry:
    if not isinstance(found, dict) or "path" not in found:
        raise Unavailable("the server's answer is not a file")
    kind = _KINDS.get(str(found.get("kind")), Kind.OTHER)
    return Entry(
        str(found["path"]),
        kind,
        int(found.get("size", 0)),
        float(found.get("modifiedAt", 0.0)),
        str(found.get("tag", "")),
    )


def _refusal(answer: Answer) -> PaddleFlowError:
    """The server's own words. What a store cannot hold is `Invalid` there and here."""
    try:
        said = json.loads(answer.body)
        code, message, hint = str(said.get("code", "")), str(said.get("message", "")), str(said.get("hint", ""))
    except (ValueError, AttributeError):
        code, message, hint = "", f"the server answered {answer.status}", ""
    if code == CHANGED:
        return changed(message)
    if answer.status == 401:
        return BY_STATUS[403](f"the mount was ended by the server: {message}", hint="mount it again")
    if answer.status >= 500:
        return Unavailable(message, code=code, hint=hint)
    return BY_STATUS.get(answer.status, Invalid)(message, code=code, hint=hint)
