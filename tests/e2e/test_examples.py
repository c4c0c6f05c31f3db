"""The example pipelines, each as YAML and as Python, run by a real server with steps as real processes."""

from __future__ import annotations

import json
import os
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paddleflow.pipeline import Pipeline
from paddleflow.sdk.client import PaddleFlow
from paddleflow.sdk.runs import Run
from tests.e2e.conftest import PADDLEFLOW, ServerProcess
from tests.framework_environments import programs_of

EXAMPLES = Path(__file__).parents[2] / "examples"
FORMS = ("yaml", "python")


class Workshop:
    """A server with the storages that the examples name."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self.client: PaddleFlow = server.connect()
        self.folder = folder
        for name in ("work", "data"):
            (folder / name).mkdir()
            self.client.storages.create(name, f"local://{folder / name}")
        self.client.storages.create("examples", f"local://{EXAMPLES}")

    def run(self, example: str, form: str, **parameters: Any) -> Run:
        folder = EXAMPLES / example
        if form == "yaml":
            started = self.client.runs.create(yaml=(folder / "run.yaml").read_bytes(), parameters=parameters)
        else:
            made = runpy.run_path(str(folder / "run.py"))[example.replace("-", "_")]()
            assert isinstance(made, Pipeline)
            started = made.submit(self.client, parameters)
        return started.wait(timeout=60)

    def done(self, example: str, form: str, **parameters: Any) -> Run:
        run = self.run(example, form, **parameters)
        states = [(step.full_name, step.status, step.message) for step in run.steps]
        assert run.succeeded, f"{run.record.message}: {states}\n{''.join(run.logs())}"
        return run


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    folder = tmp_path_factory.mktemp("pipelines")
    path = f"{Path(PADDLEFLOW).parent}:{os.environ['PATH']}"
    server = ServerProcess(folder / "server", {"PADDLEFLOW_LOCAL_CPUS": "8", "PATH": path}).start()
    yield Workshop(server, folder)
    server.end()


def said(run: Run) -> set[str]:
    return {line.rstrip("\n") for line in run.logs()}


@pytest.mark.parametrize("form", FORMS)
def test_hello(workshop: Workshop, form: str) -> None:
    run = workshop.done("hello-pipeline", form)
    assert said(run) == {f"[hello] Hello from run {run.id}", "[goodbye] Goodbye from step goodbye"}


@pytest.mark.parametrize("form", FORMS)
def test_parameters(workshop: Workshop, form: str) -> None:
    run = workshop.done("parameters", form, epochs=3, **{"train.rate": 0.5})
    planned, trained = sorted(said(run))
    assert planned.startswith("[plan] planned 3 epochs of linear for ")
    assert trained.startswith("[train] train the linear model for 3 epochs at 0.5 with")


@pytest.mark.parametrize("form", FORMS)
def test_artifacts(workshop: Workshop, form: str) -> None:
    run = workshop.done("artifacts", form, count=4)
    (line,) = list(run.logs("show"))
    assert line.startswith("the total is 10, kept at ")
    kept = {artifact.name: artifact for artifact in run.artifacts}
    assert set(kept) == {"numbers", "total"}
    assert kept["total"].read() == b"10\n"
    lineage = workshop.client.artifacts.lineage("work", kept["total"].path)
    assert (lineage.run_id, lineage.step) == (run.id, "add")


@pytest.mark.parametrize("form", FORMS)
def test_cache(workshop: Workshop, form: str) -> None:
    rows = 101 if form == "yaml" else 102
    first = workshop.done("cache", form, rows=rows)
    again = workshop.done("cache", form, rows=rows)
    assert {step.full_name: step.reused_from for step in again.steps} == {"slow": first.id, "report": ""}
    other = workshop.done("cache", form, rows=rows + 10)
    assert {step.full_name: bool(step.reused_from) for step in other.steps} == {"slow": False, "report": False}
    assert list(other.logs("report")) == [f"{rows + 10} rows\n"]


@pytest.mark.parametrize("form", FORMS)
def test_condition(workshop: Workshop, form: str) -> None:
    good = workshop.done("condition", form)
    assert {step.full_name: step.status for step in good.steps} == {
        "measure": "succeeded",
        "release": "succeeded",
        "repair": "skipped",
    }
    bad = workshop.done("condition", form, **{"measure.accuracy": 0.2})
    assert {step.full_name: step.status for step in bad.steps} == {
        "measure": "succeeded",
        "release": "skipped",
        "repair": "succeeded",
    }


@pytest.mark.parametrize("form", FORMS)
def test_loop(workshop: Workshop, form: str) -> None:
    run = workshop.done("loop", form)
    assert list(run.logs("add")) == ["the squares add up to 14\n"]
    assert len(run.record.runtime["square"]) == 3
    hellos = {line.rpartition("] ")[2] for line in run.logs("greet")}
    assert hellos == {"hello Ada\n", "hello Grace\n", "hello Linus\n"}


@pytest.mark.parametrize("form", FORMS)
def test_nested_dags(workshop: Workshop, form: str) -> None:
    run = workshop.done("nested-dag", form)
    assert list(run.logs("compare")) == ["doubled 20, tripled 30\n"]
    assert {"double.scale", "double.add", "triple.scale"} <= {step.full_name for step in run.steps}


@pytest.mark.parametrize("form", FORMS)
def test_failure_and_post_process(workshop: Workshop, form: str) -> None:
    run = workshop.run("failure-and-post-process", form)
    assert run.status == "failed"
    assert {step.full_name: step.status for step in run.steps} == {
        "flaky": "failed",
        "never": "cancelled",
        "good": "succeeded",
        "also-good": "succeeded",
        "report": "succeeded",
    }
    assert next(step.tries for step in run.steps if step.full_name == "flaky") == 3
    assert list(run.logs("report")) == [f"run {run.id} is over\n"]


@pytest.mark.xdist_group("mount-targets")  # the same paths of this machine, as root
@pytest.mark.parametrize("form", FORMS)
def test_multiple_file_systems(workshop: Workshop, form: str) -> None:
    run = workshop.done("multiple-file-systems", form)
    assert list(run.logs("read")) == ["written to the extra storage\n"]
    assert (workshop.folder / "data" / "in" / "note.txt").exists()
    (copy,) = run.artifacts
    assert copy.read() == b"written to the extra storage\n"
    assert (workshop.folder / "work" / "team" / ".pipeline" / run.id).is_dir()


@pytest.mark.parametrize("form", FORMS)
def test_machine_learning(workshop: Workshop, form: str) -> None:
    registry = workshop.folder / f"models-{form}"
    run = workshop.done("machine-learning", form, registry=str(registry))
    weights = json.loads((registry / f"{run.id}.json").read_text())
    assert weights[0] > 0 > weights[1]
    assert any(line.startswith("right for ") for line in run.logs("evaluate"))


@pytest.mark.frameworks
@pytest.mark.xdist_group("training")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("form", FORMS)
def test_distributed_training(new_server: Callable[..., ServerProcess], tmp_path: Path, form: str) -> None:
    path = f"{programs_of('paddle')}:{os.environ['PATH']}"
    workshop = Workshop(new_server(PATH=path, PADDLEFLOW_LOCAL_CPUS="8"), tmp_path)
    run = workshop.run("distributed-training", form)
    if not run.finished:
        run.wait(timeout=150)
    log = "".join(run.logs())
    assert run.succeeded, f"{run.record.message}\n{log}"
    assert "worker 1 of 2 has 200 points" in log
    assert "the line was found" in log


def test_following_a_run_ends_with_it(workshop: Workshop) -> None:
    made = runpy.run_path(str(EXAMPLES / "hello-pipeline" / "run.py"))["hello_pipeline"]()
    run = made.submit(workshop.client)
    assert {line.split("]")[0] for line in run.logs(follow=True)} == {"[hello", "[goodbye"}
    assert run.refresh().succeeded
    assert {event.type for event in run.events(follow=False)} >= {"status"}
