"""The example pipelines: both forms of each read without a fault, and are the same pipeline."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from paddleflow.pipeline import Pipeline
from paddleflow.pipeline.compiler import as_yaml
from paddleflow.spec.pipeline.document import read
from paddleflow.spec.pipeline.model import Component, Dag
from paddleflow.spec.pipeline.model import Pipeline as Read

EXAMPLES = Path(__file__).parents[3] / "examples"
PIPELINES = sorted(file.parent.name for file in EXAMPLES.glob("*/run.yaml"))


def from_python(name: str) -> Pipeline:
    """The pipeline of an example's program: its function is called as its pipeline is."""
    found = runpy.run_path(str(EXAMPLES / name / "run.py"))[name.replace("-", "_")]()
    assert isinstance(found, Pipeline)
    return found


def shape(components: dict[str, Component]) -> dict[str, object]:
    """Names, dependencies and what is inside."""
    return {
        name: (
            set(one.deps),
            bool(one.condition),
            one.loop_argument is not None,
            shape(dict(one.children)) if isinstance(one, Dag) else bool(one.job),
        )
        for name, one in components.items()
    }


def test_every_kind_of_example_is_there() -> None:
    assert PIPELINES == [
        "artifacts",
        "cache",
        "condition",
        "distributed-training",
        "failure-and-post-process",
        "hello-pipeline",
        "loop",
        "machine-learning",
        "multiple-file-systems",
        "nested-dag",
        "parameters",
    ]


@pytest.mark.parametrize("name", PIPELINES)
def test_both_forms_of_an_example_are_the_same_pipeline(name: str) -> None:
    file = EXAMPLES / name / "run.yaml"
    assert file.read_text().startswith("# ")
    written = read(file.read_text(), str(file))
    program = from_python(name)
    compiled = read(as_yaml(program.compile()))
    assert as_yaml(program.compile()) == as_yaml(from_python(name).compile())
    assert shape(dict(written.entry_points)) == shape(dict(compiled.entry_points))
    assert facts(written) == facts(compiled)


def facts(pipeline: Read) -> tuple[object, ...]:
    last = pipeline.post_process.name if pipeline.post_process else ""
    return pipeline.name, last, pipeline.strategy, pipeline.main_fs, pipeline.extra_fs, pipeline.cache
