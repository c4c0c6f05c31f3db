"""What two runs differ in."""

from __future__ import annotations

from typing import Any

from paddleflow.runs.difference import difference
from paddleflow.runs.rows import ComponentRow, RunRow


def run(number: int, command: str, **more: Any) -> tuple[RunRow, list[ComponentRow]]:
    id = f"run-{number:06}"
    details = f'{{"command": "{command.format(id)}"}}'
    columns = {"parameters": "{}", "details": details, "started_at": 1.0, "finished_at": 3.0, **more}
    step = ComponentRow(
        run_id=id,
        number=1,
        parent=0,
        name="train",
        full_name="train",
        kind="step",
        seq=0,
        status="succeeded",
        **columns,
    )
    return RunRow(id=id, user_name="alice", pipeline="{}", status="succeeded", document="name: x"), [step]


def test_runs_of_the_same_document_do_not_differ_by_the_paths_of_their_artifacts() -> None:
    first, second = run(1, "cp .pipeline/{}/model out"), run(2, "cp .pipeline/{}/model out")
    assert difference(*first, *second)["steps"] == {}


def test_what_really_differs_is_told() -> None:
    first = run(1, "cp .pipeline/{}/model out")
    second = run(2, "mv .pipeline/{}/model out", finished_at=4.5, parameters='{"lr": 0.1}')
    assert difference(*first, *second)["steps"] == {
        "train": {
            "command": ["cp .pipeline/{{PF_RUN_ID}}/model out", "mv .pipeline/{{PF_RUN_ID}}/model out"],
            "seconds": [2.0, 3.5],
            "parameters": {"lr": [None, 0.1]},
        }
    }


def test_a_step_that_only_one_of_them_has() -> None:
    first, (row, _) = run(1, "true"), run(2, "true")
    assert difference(*first, row, [])["steps"]["train"]["status"] == ["succeeded", None]
