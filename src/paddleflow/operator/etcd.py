"""Tells elastic trainers how many they should be: the key that Paddle's launcher watches, through etcd's JSON gateway.

Only a key that exists is changed: the launcher makes it, and a value that nobody asked for would outlive the job.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
from typing import Any

from paddleflow.errors import Unavailable

TIMEOUT = 3.0


def np_key(namespace: str, name: str) -> str:
    return f"/paddle/{namespace}-{name}/np"


class Etcd:
    """The etcd of the trainers; the first endpoint that answers is used."""

    def __init__(self, endpoints: str) -> None:
        found = (part.strip().removeprefix("http://").rstrip("/") for part in endpoints.split(","))
        self._endpoints = [part for part in found if part]

    async def tell(self, namespace: str, name: str, workers: int) -> bool:
        """Set the number; whether the trainers' key was there."""
        return await asyncio.to_thread(self._tell, np_key(namespace, name), str(workers))

    def _tell(self, key: str, value: str) -> bool:
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
        answer = _post(
            endpoint,
            "/v3/kv/txn",
            {
                "compare": [{"key": encoded, "target": "CREATE", "result": "GREATER", "createRevision": "0"}],
                "success": [{"requestPut": put}],
            },
        )
        return bool(answer.get("succeeded"))


def _post(endpoint: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
    connection = http.client.HTTPConnection(endpoint, timeout=TIMEOUT)
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
