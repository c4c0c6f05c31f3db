"""As much of an API client as bringing up a cluster needs, from the machine's own loopback."""

from __future__ import annotations

import http.client
import json
import ssl
from typing import Any

from scripts.lib.cluster.certificates import admin_token
from scripts.lib.cluster.inventory import LOOPBACK, Cluster


def ask(cluster: Cluster, path: str, method: str = "GET", body: object = None) -> tuple[int, Any]:
    """Status and answer of one request as the administrator; status 0 when nobody answers."""
    context = ssl.create_default_context(cafile=str(cluster.folder / "keys" / "ca.crt"))
    connection = http.client.HTTPSConnection(LOOPBACK, cluster.port("api"), timeout=5, context=context)
    headers = {"Authorization": f"Bearer {admin_token(cluster)}", "Content-Type": "application/json"}
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        answer = connection.getresponse()
        content = answer.read()
        told = json.loads(content) if answer.headers.get("Content-Type", "").startswith("application/json") else content
        return answer.status, told
    except (OSError, http.client.HTTPException, ValueError):
        return 0, None
    finally:
        connection.close()


def answers(cluster: Cluster, path: str) -> bool:
    return ask(cluster, path)[0] == 200


def ready_nodes(cluster: Cluster) -> dict[str, bool]:
    """Each node that the API server knows, and whether it is ready."""
    status, told = ask(cluster, "/api/v1/nodes")
    if status != 200:
        return {}
    return {
        node["metadata"]["name"]: any(
            condition["type"] == "Ready" and condition["status"] == "True"
            for condition in node.get("status", {}).get("conditions", [])
        )
        for node in told["items"]
    }
