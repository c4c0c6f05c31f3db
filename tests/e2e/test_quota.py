"""The quota tree as a tenant meets it: a real server, real processes."""

from __future__ import annotations

import json

import pytest

from paddleflow.errors import Conflict, Invalid
from tests.e2e.conftest import ServerProcess
from tests.patience import PATIENCE, eventually

TINY = {"cpu": "100m", "mem": "64Mi"}


def test_the_maximum_of_a_parent_holds_over_both_queues_below(server: ServerProcess) -> None:
    client = server.connect()
    server.cli("queue", "create", "lab", "default", "250m", "1Gi", "--mincpu", "200m")
    server.cli("queue", "create", "dev", "default", "1", "1Gi", "--parent", "lab", "--mincpu", "100m")
    server.cli("queue", "create", "train", "default", "1", "1Gi", "--parent", "lab", "--weight", "2", "--order", "fair")
    with pytest.raises(Invalid, match="under lab have min cpu 300m together, more than its min 200m"):
        client.queues.update("train", minimum={"cpu": "200m"})

    first, second = (client.jobs.submit(command="sleep 600", queue=queue, flavour=TINY) for queue in ("dev", "train"))
    for job in (first, second):
        eventually(lambda job=job: job.refresh().status == "running", "both run")  # type: ignore[misc]
    third = client.jobs.submit(command="true", queue="train", flavour=TINY)
    eventually(lambda: third.why().code == "quota", "the third waits for the quota")
    told = third.why()
    assert "queue lab has cpu 50m of 250m free, the job needs 100m" in told.text
    assert first.id in told.text
    assert "in queue default-queue it starts now" in [each.text for each in told.suggestions]
    printed = server.cli("job", "why", third.id).stdout
    assert f"{third.id} is pending in queue train\n  quota: queue lab has" in printed

    rows = {row["name"]: row for row in json.loads(server.cli("queue", "tree", "-o", "json").stdout)}
    used = {name: row["usedTogether"]["cpu"] for name, row in rows.items()}
    assert used == {"default-queue": "0", "lab": "200m", "dev": "100m", "train": "100m"}
    assert "   └─ train" in server.cli("queue", "tree").stdout
    with pytest.raises(Conflict, match="has queues below it: dev, train"):
        client.queues.delete("lab")

    first.stop()  # what dev leaves free, train may have
    third.wait(PATIENCE)
    assert third.status == "succeeded"
    assert third.why().text.startswith("ended at ")
    assert second.why().code == "running"
