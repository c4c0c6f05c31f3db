"""Pipelines on a cluster: the examples, and a run whose steps are on two clusters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.test_server_jobs import IMAGE, Scene
from tests.cluster.test_server_jobs import scene as scene

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TWO = """\
name: two
docker_env: none
fs_options: {main_fs: {name: gates}}
entry_points:
  there:
    env: {PF_JOB_QUEUE_NAME: q}
    artifacts: {output: [word]}
    command: echo "made in $(hostname)" > {{word}}
  here:
    deps: there
    env: {PF_JOB_QUEUE_NAME: default-queue}
    artifacts: {input: {word: "{{there.word}}"}}
    command: cat {{word}}
"""


def test_a_run_has_steps_on_two_clusters(scene: Scene) -> None:
    run = scene.client.runs.create(yaml=TWO, docker_env=IMAGE).wait(300)
    assert run.status == "succeeded", run.record.message
    clusters = {scene.client.jobs.get(step.job_id).record.queue for step in run.steps}
    assert clusters == {"q", "default-queue"}
    assert f"made in {run.steps[0].job_id}" in "".join(run.logs())


def on_queue(components: dict[str, Any]) -> None:
    """Name the cluster's queue in every step; nothing else of an example changes."""
    for each in components.values():
        if "entry_points" in each:
            on_queue(each["entry_points"])
        elif "reference" not in each:
            each["env"] = {**each.get("env", {}), "PF_JOB_QUEUE_NAME": "q"}


@pytest.mark.timeout(400)
def test_examples_run_on_the_cluster(scene: Scene) -> None:
    """Those whose steps need no Python, which the image of the test nodes lacks."""
    folder = scene.folder / "work"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    scene.client.storages.create("work", f"local://{folder}")
    found = {}
    for name in ("hello-pipeline", "parameters", "artifacts", "condition", "nested-dag"):
        document = yaml.safe_load((EXAMPLES / name / "run.yaml").read_text())
        for part in ("entry_points", "components", "post_process"):
            on_queue(document.get(part) or {})
        found[name] = scene.client.runs.create(yaml=yaml.safe_dump(document, sort_keys=False), docker_env=IMAGE)
    assert {name: run.wait(300).status for name, run in found.items()} == dict.fromkeys(found, "succeeded")
    assert "the total is 55" in "".join(found["artifacts"].logs())
