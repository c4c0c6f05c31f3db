"""S3 and what speaks it (MinIO, SeaweedFS, BOS, OSS, COS) as a store.

Folders are prefixes; an explicit one is an empty object whose key ends with a slash. `rename` copies and removes, so it is
not atomic. Large content goes by parts, several at once, and appears whole when the last request is answered. Metadata
values may hold any text: they travel percent-encoded. A name may be a file and a folder at once where the server allows
that: S3 has no folders, and a check before each write would cost a request and still be a race.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from html import escape
from typing import BinaryIO, NoReturn
from urllib.parse import quote, unquote, unquote_plus, urlsplit
from xml.etree import ElementTree

from paddleflow.base.values import dataclass
from paddleflow.errors import Conflict, Forbidden, Invalid, NotFound, OverQuota, TooLarge, TooMany, Unavailable
from paddleflow.objects.connections import Answer, Connections
from paddleflow.objects.signature import Credentials, Signer, encode_path, encode_query
from paddleflow.objects.store import (
    BAD_CREDENTIALS,
    MOST_SIZE,
    NO_SUCH_BUCKET,
    Capabilities,
    Entry,
    Kind,
    Part,
    absent,
    changed,
    check_folder_key,
    check_key,
    check_range,
    exists_already,
    is_below,
    not_empty,
    shorten,
)

PART = 8 * 2**20  #: bytes of a part, unless the object has more than 10,000 of them
MOST_PARTS = 10_000
PARTS_AT_ONCE = 4
_MOST_ANSWER = 16 * 2**20  #: bytes of an answer that is no content
_MOST_XML = 8 * 2**20  #: bytes of an answer that is read as XML: 1,000 keys and what belongs to them have 4 MiB
_MOST_MARKUP = 200_000  #: elements and attributes of it, each of which takes many times its bytes
_MOST_WORDS = 64 * 1024  #: bytes in which an error's words are looked for
MOST_EMPTY_PAGES = 1_000  #: of a listing, one after the other
_LARGE = 2**20  #: bytes from which an answer is worth receiving without copies
_META = "x-amz-meta-"
_FOLDER_TYPE = "application/x-directory"


@dataclass(frozen=True, slots=True)
class Bucket:
    """Where a bucket is, and who asks."""

    endpoint: str  #: such as https://s3.eu-west-1.amazonaws.com
    name: str
    prefix: str = ""  #: keys of the store lie below it
    region: str = "us-east-1"
    credentials: Credentials | None = None  #: None: ask without a signature
    verify: bool = True  #: of the server's certificate
    path_style: bool = True  #: False: the bucket is the first part of the host's name


class S3Store:
    """`MultipartStore` over a bucket, or a prefix of it."""

    def __init__(self, bucket: Bucket, *, seconds: float = 60.0) -> None:
        url = urlsplit(bucket.endpoint)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise Invalid(
                f"endpoint {shorten(bucket.endpoint)} is not a URL", hint="write it as https://s3.example.com"
            )
        if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", bucket.name):
            raise Invalid(
                f"bucket {shorten(bucket.name)} is not a valid bucket name: 3 to 63 lower-case letters, digits, - and ."
            )
        prefix = check_folder_key(bucket.prefix.strip("/"))
        self.name = f"s3://{bucket.name}/{prefix}".rstrip("/")
        self.capabilities = Capabilities(
            metadata=True, copy=True, if_absent=True, if_tag=True, tree=False, multipart=True
        )
        self._bucket = bucket
        self._prefix = prefix + "/" if prefix else ""
        self._path = url.path.rstrip("/") + ("/" + bucket.name if bucket.path_style else "")
        host = url.hostname if bucket.path_style else f"{bucket.name}.{url.hostname}"
        tls = url.scheme == "https"
        port = url.port or (443 if tls else 80)
        self._http = Connections(host, port, tls=tls, verify=bucket.verify, seconds=seconds)
        self._signer = Signer(bucket.credentials, bucket.region) if bucket.credentials else None
        self._pool = ThreadPoolExecutor(PARTS_AT_ONCE, "s3-parts")

    def close(self) -> None:
        self._pool.shutdown(wait=False)
        self._http.close()

    # ---- requests ----

    def _ask(
        self,
        method: str,
        key: str,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | memoryview = b"",
        *,
        most: int = _MOST_ANSWER,
        large: bool = False,
    ) -> Answer:
        """One signed request; `key` is relative to the store, empty for the bucket itself."""
        path = encode_path(self._path + ("/" + self._prefix + key if key else "")) or "/"
        asked = encode_query(query or {})
        given = dict(headers or {})
        if self._signer is not None:
            given = self._signer.sign(method, self._http.authority, path, asked, given, body=body)
        return self._http.request(method, path + ("?" + asked if asked else ""), given, body, most=most, large=large)

    def _refuse(self, answer: Answer, key: str) -> NoReturn:
        """Raise what an answer other than success means."""
        code = _word(answer.body, "Code")
        what, said = (
            f"{shorten(key)} in {self.name}" if key else self.name,
            _word(answer.body, "Message") or code or f"status {answer.status}",
        )
        match answer.status, code:
            case _, "NoSuchBucket":
                raise Invalid(
                    f"bucket {self._bucket.name} does not exist at {self._bucket.endpoint}", code=NO_SUCH_BUCKET
                )
            case _, "RequestTimeTooSkewed":
                raise Forbidden(f"{what}: {said}", code=BAD_CREDENTIALS, hint=_clock_hint(answer, time.time()))
            case _, "SignatureDoesNotMatch" | "InvalidAccessKeyId" | "XAdminUserNotFound":
                raise Forbidden(f"{what}: {said}", code=BAD_CREDENTIALS, hint="check the access key and the secret key")
            case _, "ExpiredToken" | "InvalidToken":
                raise Forbidden(f"{what}: {said}", code=BAD_CREDENTIALS, hint="get new temporary credentials")
            case _, "QuotaExceeded" | "XMinioAdminBucketQuotaExceeded" | "XMinioStorageFull":
                raise OverQuota(f"{what}: {said}", hint="free some space, or have the quota of the bucket raised")
            case 404, _:
                raise NotFound(f"{what} does not exist")
            case 401 | 403, _:
                hint = "check the access key and the secret key, and what they may do with this bucket"
                raise Forbidden(f"{what}: {said}", hint=hint)
            case 412 | 304, _:
                raise changed(key)
            case 409, _:
                raise Conflict(f"{what}: {said}", code=code)
            case _, "EntityTooLarge":
                raise TooLarge(f"{what}: {said}")
            case 507, _:
                raise OverQuota(f"{what}: {said}")
            case 429, _:
                raise TooMany(f"{what}: {said}")
            case status, "SlowDown" | "RequestTimeout" | "InternalError":
                raise Unavailable(f"{what}: {said} (status {status})")
            case status, _ if status >= 500:
                raise Unavailable(f"{what}: {said} (status {status})")
            case _:
                raise Invalid(f"{what}: {said}", code=code)

    # ---- looking ----

    def stat(self, key: str) -> Entry:
        folder, key = key.endswith("/"), check_folder_key(key)
        if key and not folder:
            answer = self._ask("HEAD", key)
            if answer.status == 200:
                return _entry(key, answer)
            if answer.status != 404:
                # an answer to HEAD has no words: asked for the content, a server says why not
                said = self._ask("GET", key, headers={"Range": "bytes=0-0"})
                self._refuse(said if said.status >= 400 else answer, key)
        return self._stat_folder(key)

    def _stat_folder(self, key: str) -> Entry:
        """A folder is there when it was made, or when something lies below it."""
        if key:
            marker = self._ask("HEAD", key + "/")
            if marker.status == 200:
                return Entry(key, Kind.FOLDER, modified_at=_moment(marker), metadata=_metadata(marker))
        prefix = self._prefix + (key + "/" if key else "")
        answer = self._ask("GET", "", {"list-type": "2", "prefix": prefix, "max-keys": "1", "encoding-type": "url"})
        if answer.status != 200:
            self._refuse(answer, key)
        if key and _parse(answer.body).find("Contents/Key") is None:
            raise absent(self.name, key)
        return Entry(key, Kind.FOLDER)

    def list_entries(self, folder: str = "", *, recursive: bool = False) -> Iterator[Entry]:
        folder = check_folder_key(folder)
        prefix = self._prefix + (folder + "/" if folder else "")
        query = {"list-type": "2", "prefix": prefix, "encoding-type": "url", "max-keys": "1000"}
        if not recursive:
            query["delimiter"] = "/"
        empty = 0
        while empty < MOST_EMPTY_PAGES:
            answer = self._ask("GET", "", query)
            if answer.status != 200:
                self._refuse(answer, folder)
            page = _parse(answer.body)
            empty += 1
            for entry in self._listed(page, prefix):
                empty = 0
                yield entry
            token = _text(page, "NextContinuationToken")
            if _text(page, "IsTruncated") != "true" or not token:
                return
            query["continuation-token"] = token
        raise Unavailable(
            f"{self.name}: the listing of {shorten(folder)} has {MOST_EMPTY_PAGES} pages without an entry"
        )

    def _listed(self, page: ElementTree.Element, prefix: str) -> Iterator[Entry]:
        """The entries of a page. What lies elsewhere, or could not be a file below a folder, is none, whatever the server says."""
        try:
            for found in page.iterfind("Contents"):
                key = _key(page, found.find("Key"))
                if key == prefix or key.endswith("/") or not is_below(key, prefix):
                    continue  # the marker of a folder, or a name that is none
                changed_at = (_text(found, "LastModified") or "").replace("Z", "+00:00")
                modified = datetime.fromisoformat(changed_at).timestamp()
                tag = (_text(found, "ETag") or "").strip('"')
                size = _size(_text(found, "Size") or "0")
                yield Entry(key.removeprefix(self._prefix), Kind.FILE, size, modified, tag)
            for found in page.iterfind("CommonPrefixes/Prefix"):
                key = _key(page, found).rstrip("/")
                if is_below(key, prefix):
                    yield Entry(key.removeprefix(self._prefix), Kind.FOLDER)
        except (ValueError, OverflowError) as error:
            raise Unavailable(f"{self.name}: an entry of a listing cannot be read: {shorten(str(error))}") from error

    # ---- reading ----

    def read(self, key: str, *, size: int, offset: int = 0, tag: str = "") -> bytes:
        check_key(key)
        check_range(offset, size)
        headers = {"Range": f"bytes={offset}-{offset + max(size, 1) - 1}"}
        if tag:
            headers["If-Match"] = f'"{tag}"'
        answer = self._ask("GET", key, None, headers, most=max(size, _MOST_ANSWER), large=size >= _LARGE)
        if answer.status == 206:
            return answer.body[:size]
        if answer.status == 200:  # a server without ranges, or an empty object
            return answer.body[offset : offset + size]
        if answer.status != 416:
            self._refuse(answer, key)
        return b""

    # ---- writing ----

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
        condition = _condition(if_absent, if_tag)
        if isinstance(content, bytes):
            first, rest = content, None
        else:
            first, rest = _read_full(content, PART), content
        if rest is None or len(first) < PART:
            answer = self._ask("PUT", key, None, {**_headers(metadata), **condition}, first)
            if answer.status != 200:
                self._refuse_write(answer, key, bool(if_tag))
            return _written(key, len(first), answer.headers.get("etag", ""), metadata)
        return self._write_parts(key, first, rest, metadata, condition)

    def _refuse_write(self, answer: Answer, key: str, tagged: bool) -> NoReturn:
        if answer.status == 404 and tagged:
            raise changed(key)
        if answer.status in (409, 412) and not tagged and _word(answer.body, "Code") == "PreconditionFailed":
            raise exists_already(self.name, key)
        self._refuse(answer, key)

    def _write_parts(
        self, key: str, first: bytes, rest: BinaryIO, metadata: Mapping[str, str] | None, condition: Mapping[str, str]
    ) -> Entry:
        """Content of unknown length, by parts, of which a few are on their way at once."""
        upload = self.start_upload(key, metadata=metadata)
        try:
            waiting: list[Future[Part]] = []
            parts: list[Part] = []
            piece, number, size = first, 1, 0
            while piece:
                if number > MOST_PARTS:
                    raise TooLarge(f"{shorten(key)} has more than {MOST_PARTS} parts of {PART} bytes")
                waiting.append(self._pool.submit(self.write_part, key, upload, number, piece))
                size += len(piece)
                if len(waiting) > PARTS_AT_ONCE:
                    parts.append(waiting.pop(0).result())
                piece, number = _read_full(rest, PART), number + 1
            parts += [each.result() for each in waiting]
            return self._finish(key, upload, parts, size, metadata, condition)
        except BaseException:
            self.abort_upload(key, upload)
            raise

    def start_upload(self, key: str, *, metadata: Mapping[str, str] | None = None) -> str:
        answer = self._ask("POST", check_key(key), {"uploads": ""}, _headers(metadata))
        upload = _word(answer.body, "UploadId")
        if answer.status != 200 or not upload:
            self._refuse(answer, key)
        return upload

    def write_part(self, key: str, upload: str, number: int, content: bytes) -> Part:
        query = {"partNumber": str(number), "uploadId": upload}
        answer = self._ask("PUT", check_key(key), query, None, content)
        if answer.status != 200:
            self._refuse(answer, key)
        return Part(number, answer.headers.get("etag", "").strip('"'))

    def list_parts(self, key: str, upload: str) -> list[Part]:
        parts: list[Part] = []
        query = {"uploadId": upload}
        while len(parts) <= MOST_PARTS:
            before = len(parts)
            answer = self._ask("GET", check_key(key), query)
            if answer.status != 200:
                self._refuse(answer, key)
            page = _parse(answer.body)
            parts += [
                Part(_size(_text(found, "PartNumber") or "0"), (_text(found, "ETag") or "").strip('"'))
                for found in page.iterfind("Part")
            ]
            if _text(page, "IsTruncated") != "true" or len(parts) == before:
                return parts
            query["part-number-marker"] = _text(page, "NextPartNumberMarker") or str(parts[-1].number)
        raise Unavailable(f"{self.name}: an upload of more than {MOST_PARTS} parts")

    def finish_upload(
        self, key: str, upload: str, parts: list[Part], *, if_absent: bool = False, if_tag: str = ""
    ) -> Entry:
        self._finish(key, upload, parts, 0, None, _condition(if_absent, if_tag))
        return self.stat(key)

    def _finish(
        self,
        key: str,
        upload: str,
        parts: list[Part],
        size: int,
        metadata: Mapping[str, str] | None,
        condition: Mapping[str, str],
    ) -> Entry:
        listed = "".join(
            f"<Part><PartNumber>{part.number}</PartNumber><ETag>{escape(part.tag)}</ETag></Part>" for part in parts
        )
        body = f"<CompleteMultipartUpload>{listed}</CompleteMultipartUpload>".encode()
        answer = self._ask("POST", check_key(key), {"uploadId": upload}, condition, body)
        # A server that takes long answers 200 first, and an error in the body
        if answer.status != 200 or _word(answer.body, "Code"):
            self._refuse_write(answer, key, "If-Match" in condition)
        return _written(key, size, _word(answer.body, "ETag").replace("&quot;", '"').replace("&#34;", '"'), metadata)

    def abort_upload(self, key: str, upload: str) -> None:
        answer = self._ask("DELETE", check_key(key), {"uploadId": upload})
        if answer.status not in (200, 204, 404):
            self._refuse(answer, key)

    def remove(self, key: str) -> None:
        answer = self._ask("DELETE", check_key(key))
        if answer.status not in (200, 204) and (answer.status != 404 or _word(answer.body, "Code") == "NoSuchBucket"):
            self._refuse(answer, key)

    def make_folder(self, key: str, *, metadata: Mapping[str, str] | None = None) -> None:
        key = check_key(key.removesuffix("/"))
        headers = _headers(metadata)
        if headers:
            # Some servers keep no metadata of such an object, but its type.
            headers["Content-Type"] = f"{_FOLDER_TYPE}; metadata={quote(json.dumps(dict(metadata or {})), safe='')}"
        answer = self._ask("PUT", key + "/", None, headers)
        if answer.status != 200:
            self._refuse(answer, key)

    def remove_folder(self, key: str) -> None:
        key = check_key(key.removesuffix("/"))
        query = {"list-type": "2", "prefix": f"{self._prefix}{key}/", "max-keys": "2", "encoding-type": "url"}
        answer = self._ask("GET", "", query)
        if answer.status != 200:
            self._refuse(answer, key)
        page = _parse(answer.body)
        for found in page.iterfind("Contents/Key"):
            if _key(page, found) != f"{self._prefix}{key}/":
                raise not_empty(self.name, key)
        answer = self._ask("DELETE", key + "/")
        if answer.status not in (200, 204, 404):
            self._refuse(answer, key)

    def copy(self, source: str, target: str) -> Entry:
        return self._copy(check_key(source), check_key(target), {})

    def _copy(self, source: str, target: str, headers: Mapping[str, str]) -> Entry:
        origin = encode_path(f"/{self._bucket.name}/{self._prefix}{source}")
        answer = self._ask("PUT", target, None, {"x-amz-copy-source": origin, **headers})
        if answer.status != 200 or _word(answer.body, "Code"):
            self._refuse(answer, source)
        return self.stat(target)

    def rename(self, source: str, target: str) -> Entry:
        copied = self.copy(source, target)
        self.remove(source)
        return copied

    def set_metadata(self, key: str, metadata: Mapping[str, str]) -> Entry:
        check_key(key)
        return self._copy(key, key, {"x-amz-metadata-directive": "REPLACE", **_headers(metadata)})


def _condition(if_absent: bool, if_tag: str) -> dict[str, str]:
    return {"If-None-Match": "*"} if if_absent else {"If-Match": f'"{if_tag}"'} if if_tag else {}


def _headers(metadata: Mapping[str, str] | None) -> dict[str, str]:
    return {_META + name: quote(value, safe=" /:;,.@!()*'~+=&?") for name, value in (metadata or {}).items()}


def _metadata(answer: Answer) -> dict[str, str]:
    found = answer.headers.items()
    metadata = {name.removeprefix(_META): unquote(value) for name, value in found if name.startswith(_META)}
    kind, _, encoded = answer.headers.get("content-type", "").partition("; metadata=")
    if not metadata and encoded and kind == _FOLDER_TYPE:
        with suppress(ValueError, TypeError, RecursionError):  # not ours
            return {str(name): str(value) for name, value in dict(json.loads(unquote(encoded))).items()}
    return metadata


def _moment(answer: Answer) -> float:
    try:
        return parsedate_to_datetime(answer.headers["last-modified"]).timestamp()
    except (KeyError, ValueError, OverflowError):
        return 0.0


def _clock_hint(answer: Answer, now: float) -> str:
    """By how much the clocks differ, if the server says what time it is."""
    try:
        theirs = parsedate_to_datetime(answer.headers.get("date", "")).timestamp()
    except ValueError:
        return "set this machine's clock"
    where = "ahead of" if now > theirs else "behind"
    return f"set this machine's clock: it is {abs(now - theirs):.0f} s {where} the server's"


def _entry(key: str, answer: Answer) -> Entry:
    try:
        size = _size(answer.headers.get("content-length", "0"))
    except ValueError as error:
        raise Unavailable(f"the size of {shorten(key)} cannot be read: {shorten(str(error))}") from error
    return Entry(key, Kind.FILE, size, _moment(answer), answer.headers.get("etag", "").strip('"'), _metadata(answer))


def _written(key: str, size: int, tag: str, metadata: Mapping[str, str] | None) -> Entry:
    return Entry(key, Kind.FILE, size, datetime.now(UTC).timestamp(), tag.strip('"'), dict(metadata or {}))


def _size(text: str) -> int:
    size = int(text[:20])
    if not 0 <= size <= MOST_SIZE:
        raise ValueError(f"{size} is no size")
    return size


def _parse(body: bytes) -> ElementTree.Element:
    """An answer's XML, names without their name space. What would take far more memory than it has bytes is refused unread."""
    try:
        text = body.decode()  # by any other encoding, what is looked for here could be hidden
        markup = text.count("<") + text.count('="') + text.count("='")
        if len(body) > _MOST_XML or markup > _MOST_MARKUP or "<!DOCTYPE" in text:
            raise Unavailable("the answer's XML is larger than a listing can be, or defines words of its own")
        page = ElementTree.fromstring(text)  # noqa: S314 without a document type nothing is expanded
    except (ElementTree.ParseError, ValueError) as error:
        raise Unavailable("the answer is not XML") from error
    for each in page.iter():
        each.tag = each.tag.rpartition("}")[2]
    return page


def _text(element: ElementTree.Element, path: str) -> str | None:
    return element.findtext(path)


def _key(page: ElementTree.Element, element: ElementTree.Element | None) -> str:
    """A key of a listing, decoded if the server did as it was asked and encoded it."""
    text = (element.text or "") if element is not None else ""
    return unquote_plus(text) if page.findtext("EncodingType") == "url" else text


def _word(body: bytes, name: str) -> str:
    """The text of the first element of that name; enough for errors and single words."""
    # No two repetitions may meet in the pattern: the answer may be made to be searched for hours, with the interpreter held.
    found = re.search(rf"<{name}[^<>]*>([^<]*)<".encode(), body[:_MOST_WORDS])
    return found[1].decode("utf-8", "replace").strip() if found else ""


def _read_full(stream: BinaryIO, size: int) -> bytes:
    content = stream.read(size)
    if len(content) == size or not content:
        return content
    pieces, missing = [content], size - len(content)
    while missing and (more := stream.read(missing)):
        pieces.append(more)
        missing -= len(more)
    return b"".join(pieces)
