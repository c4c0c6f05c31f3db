"""Runs over plain REST, as any client may speak it."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from tests.e2e.conftest import ServerProcess
from tests.patience import PATIENCE, eventually

FINAL = {"succeeded", "failed", "terminated", "skipped"}


def call(server: ServerProcess, method: str, path: str, body: object = None) -> Any:
    """The answer, decoded; a refusal as its body with the key `status`."""
    data = None if body is None else json.dumps(body).encode()
    request = Request(f"{server.url}/api/paddleflow/v1{path}", data, method=method)
    request.add_header("x-pf-authorization", server.token)
    try:
        with urlopen(request, timeout=30) as answer:
            text = answer.read()
    except HTTPError as error:
        return {"status": error.code, **json.loads(error.read())}
    return json.loads(text) if text else None


def create(server: ServerProcess, yaml: str, **fields: Any) -> str:
    """The id of a new run."""
    raw = base64.b64encode(yaml.encode()).decode()
    answer = call(server, "POST", "/run", {"runYamlRaw": raw, **fields})
    assert "runID" in answer, answer
    run: str = answer["runID"]
    return run


def ended(server: ServerProcess, run: str, seconds: float = PATIENCE) -> dict[str, Any]:
    """The run once it has ended."""

    def look() -> dict[str, Any] | None:
        view: dict[str, Any] = call(server, "GET", f"/run/{run}")
        return view if view["status"] in FINAL else None

    found = eventually(look, f"{run} has ended", seconds)
    assert found is not None
    return found


def statuses(view: dict[str, Any]) -> dict[str, str]:
    """Full name → status of every component."""
    found: dict[str, str] = {}
    waiting = [*view["runtime"].values(), list(view["postProcess"].values())]
    while waiting:
        for each in waiting.pop():
            found[each["fullName"]] = each["status"]
            waiting.extend(each.get("entryPoints", {}).values())
    return found
