"""Submits jobs to a deployment, from a pod beside it, until a file says stop; then waits until all of them have ended.

Runs with the package of the image: ``python3 deployment_load.py URL PASSWORD NAMESPACE``. Prints a line for each acknowledged job, and
at last the status of each job as JSON. Each job has an id of its own, so that a submit whose answer was lost can be sent again.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from paddleflow.errors import Conflict, PaddleFlowError
from paddleflow.sdk.client import PaddleFlow, connect

STOP = Path("/tmp/stop")
IMAGE = "docker.io/local/busybox:1"
SECONDS = 300.0
T = TypeVar("T")


def again(call: Callable[[], T]) -> T:
    """Until somebody answers: a server that ends now is no answer."""
    until = time.monotonic() + SECONDS
    while True:
        try:
            return call()
        except Conflict:
            raise
        except (PaddleFlowError, OSError) as error:
            print("again", type(error).__name__, error, flush=True)
            if time.monotonic() > until:
                raise
            time.sleep(0.3)


def submit(client: PaddleFlow, name: str) -> None:
    document = {
        "id": name,
        "command": "echo ran",
        "image": IMAGE,
        "flavour": {"cpu": "10m", "mem": "16Mi"},
        "schedulingPolicy": {"queue": "q"},
    }
    try:
        again(lambda: client.jobs.submit(document))
    except Conflict:  # it was acknowledged, and the answer was lost
        print("known", name, flush=True)
    print("acknowledged", name, flush=True)


def main(url: str, password: str, namespace: str) -> None:
    client = again(lambda: connect(url, username="root", password=password))
    setting = json.dumps({"defaultImage": IMAGE, "runAsUser": 65534})
    made: tuple[Callable[[], object], ...] = (
        lambda: client.clusters.create(
            "here",
            endpoint="https://kubernetes.default",
            type="Kubernetes",
            namespaces=[namespace],
            setting=setting,
        ),
        lambda: client.queues.create("q", namespace, {"cpu": "1", "mem": "1Gi"}, cluster="here"),
    )
    for make in made:
        try:
            again(make)
        except Conflict:
            continue
    found = again(lambda: client.clusters.check("here"))
    print("check", json.dumps([[each.what, each.ok, each.message] for each in found.findings]), flush=True)
    names: list[str] = []
    while not STOP.exists():
        names.append(f"load-{len(names)}")
        submit(client, names[-1])
        time.sleep(0.5)
    until = time.monotonic() + SECONDS
    while True:
        seen = {name: again(lambda name=name: client.jobs.get(name)).status for name in names}  # type: ignore[misc]
        if all(status in {"succeeded", "failed", "terminated"} for status in seen.values()) or time.monotonic() > until:
            break
        time.sleep(1.0)
    logs = {name: "".join(again(lambda name=name: list(client.jobs.get(name).logs()))) for name in names[:3]}  # type: ignore[misc]
    print("result", json.dumps({"jobs": seen, "logs": logs}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
