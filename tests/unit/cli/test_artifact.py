"""`paddleflow artifact lineage`: where an artifact came from, generation by generation."""

from __future__ import annotations

from tests.client_stub import Shell, Stub


def test_lineage_goes_back_to_what_came_from_outside(stub: Stub, shell: Shell) -> None:
    data = {"path": "p/data", "runID": "run-000001", "step": "prepare", "inputs": [{"path": "raw.csv", "runID": ""}]}
    stub.on("GET /artifact/lineage", {"path": "p/model", "runID": "run-000002", "step": "train", "inputs": [data]})
    assert shell("artifact", "lineage", "p/model", "-f", "work").output.splitlines() == [
        "p/model  produced by run-000002 train",
        "  p/data  produced by run-000001 prepare",
        "    raw.csv  not produced by a run",
    ]
    assert stub.requests[-1].query == {"fsname": "work", "path": "p/model"}
