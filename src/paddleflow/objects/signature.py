"""AWS's signature, version 4, for requests without query parameters of their own in it. Pure.

The body is signed by its SHA-256: a server that gets only a part of it, because the connection was cut, then refuses it. Without that some
servers store what they got as if it were whole. A request without a body is sent as UNSIGNED-PAYLOAD.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from time import gmtime, strftime, time
from urllib.parse import quote

from paddleflow.base.values import dataclass

PAYLOAD = "UNSIGNED-PAYLOAD"
_SAFE = "-_.~"
_MOMENT = "%Y%m%dT%H%M%SZ"


@dataclass(frozen=True, slots=True)
class Credentials:
    """The keys of an account; `token` for temporary ones."""

    access_key: str
    secret_key: str
    token: str = ""

    def __repr__(self) -> str:
        return f"Credentials({self.access_key!r}, …)"  # the secret stays out of logs and tracebacks


def encode_path(path: str) -> str:
    return quote(path, safe="/" + _SAFE)


def encode_query(query: Mapping[str, str]) -> str:
    """Sorted and encoded, as it is both sent and signed."""
    return "&".join(f"{quote(name, safe=_SAFE)}={quote(value, safe=_SAFE)}" for name, value in sorted(query.items()))


class Signer:
    """Signs requests of one account to one region."""

    def __init__(self, credentials: Credentials, region: str) -> None:
        self._credentials, self._region = credentials, region
        self._key = ("", b"")  #: the day, and the key that is derived from it

    def sign(
        self,
        method: str,
        authority: str,
        path: str,
        query: str,
        headers: Mapping[str, str],
        now: datetime | None = None,
        *,
        body: bytes | memoryview = b"",
    ) -> dict[str, str]:
        """The headers to send: those given, and the signature. `path` and `query` are encoded already."""
        moment = strftime(_MOMENT, gmtime(time()) if now is None else now.utctimetuple())
        day = moment[:8]
        payload = hashlib.sha256(body).hexdigest() if body else PAYLOAD
        signed = {"x-amz-content-sha256": payload, "x-amz-date": moment, **headers}
        if self._credentials.token:
            signed["x-amz-security-token"] = self._credentials.token
        canonical = sorted(
            [(name.lower(), " ".join(value.split())) for name, value in signed.items()] + [("host", authority)]
        )
        names = ";".join([name for name, _ in canonical])
        lines = "".join([f"{name}:{value}\n" for name, value in canonical])
        request = f"{method}\n{path}\n{query}\n{lines}\n{names}\n{payload}"
        scope = f"{day}/{self._region}/s3/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
        signature = hmac.digest(self._day_key(day), text.encode(), "sha256").hex()
        signed["Authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self._credentials.access_key}/{scope}, SignedHeaders={names}, "
            f"Signature={signature}"
        )
        return signed

    def _day_key(self, day: str) -> bytes:
        known, key = self._key
        if known != day:
            key = f"AWS4{self._credentials.secret_key}".encode()
            for part in (day, self._region, "s3", "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._key = (day, key)
        return key
