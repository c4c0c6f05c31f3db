"""Sets the number of elastic trainers: the key that Paddle's older launchers watch, through etcd's JSON gateway.

Only a key that exists is changed: the launcher makes it, and a value that nobody asked for would outlive the job. Launchers
since Paddle 2.3 make none: they count each other (`paddlejob.contract` gives them the address).
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import ssl
from typing import Any

from paddleflow.base.values import dataclass
from paddleflow.errors import Invalid, Unavailable

TIMEOUT = 3.0


@dataclass(frozen=True, slots=True)
class Keys:
    """Files by which operator and etcd prove themselves to each other, where its endpoints are ``https://``. Empty authority:
    those that the system trusts."""

    authority: str = ""
    certificate: str = ""
    key: str = ""

    def context(self) -> ssl.SSLContext:
        if bool(self.certificate) != bool(self.key):
            raise Invalid("--etcd-cert and --etcd-key belong together: one of them is missing")
        try:
            found = ssl.create_default_context(cafile=self.authority or None)
            if self.certificate:
                found.load_cert_chain(self.certificate, self.key)
        except OSError as error:  # ssl.SSLError is one
            files = ", ".join(each for each in (self.authority, self.certificate, self.key) if each)
            raise Invalid(f"the files for etcd cannot be used ({files}): {error}") from error
        return found


def np_key(namespace: str, name: str) -> str:
    return f"/paddle/{namespace}-{name}/np"


class Etcd:
    """The etcd of the trainers; the first endpoint that answers is used."""

    def __init__(self, endpoints: str, keys: Keys | None = None) -> None:
        found = (part.strip().removeprefix("http://").rstrip("/") for part in endpoints.split(","))
        self._endpoints = [part for part in found if part]
        secure = any(endpoint.startswith("https://") for endpoint in self._endpoints)
        self._tls = (keys or Keys()).context() if secure else None

    async def set_workers(self, namespace: str, name: str, workers: int) -> bool:
        """Set the number; whether the trainers' key was there."""
        return await asyncio.to_thread(self._put, np_key(namespace, name), str(workers))

    def _put(self, key: str, value: str) -> bool:
        errors = []
        for endpoint in self._endpoints:
            try:
                return self._put_existing(endpoint, key, value)
            except (OSError, http.client.HTTPException, ValueError) as error:
                errors.append(f"{endpoint}: {error}")
        raise Unavailable(f"etcd of the elastic trainers does not answer: {'; '.join(errors)}")

    def _put_existing(self, endpoint: str, key: str, value: str) -> bool:
        encoded = base64.b64encode(key.encode()).decode()
        put = {"key": encoded, "value": base64.b64encode(value.encode()).decode()}
        answer = self._post(
            endpoint,
            "/v3/kv/txn",
            {
                "compare": [{"key": encoded, "target": "CREATE", "result": "GREATER", "createRevision": "0"}],
                "success": [{"requestPut": put}],
            },
        )
        return bool(answer.get("succeeded"))

    def _post(self, endpoint: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        connection = self._connection(endpoint)
        try:
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 200:
                raise ValueError(f"answered {answer.status}: {text[:200]!r}")
            found: dict[str, Any] = json.loads(text)
            return found
        finally:
            connection.close()

    def _connection(self, endpoint: str) -> http.client.HTTPConnection:
        address = endpoint.removeprefix("https://")
        if address == endpoint:
            return http.client.HTTPConnection(address, timeout=TIMEOUT)
        return http.client.HTTPSConnection(address, timeout=TIMEOUT, context=self._tls)
