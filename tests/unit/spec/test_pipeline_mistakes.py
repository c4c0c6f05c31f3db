"""Mistakes in pipelines written in Python: each is refused when it is made or compiled, in words that name it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from paddleflow import PaddleFlowSDKException
from paddleflow.pipeline import (
    DAG,
    PF_LOOP_ARGUMENT,
    Artifact,
    CacheOptions,
    ContainerStep,
    FailureOptions,
    Parameter,
    Pipeline,
    Retry,
)


def refused(build: Callable[[], object], *words: str, docker_env: str | None = "image") -> None:
    with pytest.raises(PaddleFlowSDKException) as caught:
        Pipeline(name="p", docker_env=docker_env)(build)().compile()
    assert caught.value.code == "PipelineDSLError"
    for word in words:
        assert word in str(caught.value.message)


REFUSED: dict[str, tuple[Callable[[], object], tuple[str, ...]]] = {
    "component name": (lambda: ContainerStep(name="a_b", command="x"), ("stepName[a_b]",)),
    "a name twice": (
        lambda: (ContainerStep(name="a", command="x"), ContainerStep(name="a", command="y")),
        ("several components named [a]", "the pipeline"),
    ),
    "variable name": (lambda: ContainerStep(name="a", command="x", parameters={"1x": 1}), ("name[1x]",)),
    "parameter value": (lambda: ContainerStep(name="a", parameters={"x": True}), ("x is True",)),
    "parameter type": (lambda: Parameter(1, "path"), ("'path'", "string, float, int, list")),
    "parameter default": (lambda: Parameter("many", int), ("'many'", "'int'")),
    "parameter of nothing": (lambda: ContainerStep(name="a", parameters={"x": Parameter()}), ("x has neither",)),
    "output value": (lambda: ContainerStep(name="a", outputs={"x": 1}), ("x is 1", "Artifact()")),  # type: ignore[dict-item]
    "input value": (lambda: ContainerStep(name="a", inputs={"x": Artifact()}), ("x is Artifact()",)),
    "names in common": (
        lambda: ContainerStep(name="a", parameters={"x": 1}, outputs={"X": Artifact()}),
        ("different names", "'x' and 'X'"),
    ),
    "env of a thing": (lambda: ContainerStep(name="a", env={"X": []}), ("X is []",)),
    "condition": (lambda: ContainerStep(name="a", condition=1), ("condition", "it must be text")),  # type: ignore[arg-type]
    "loop over a number": (lambda: ContainerStep(name="a", loop_argument=5), ("loop_argument", "int")),  # type: ignore[arg-type]
    "loop over text": (lambda: ContainerStep(name="a", loop_argument="a,b"), ("JSON list",)),
    "loop over an object": (lambda: ContainerStep(name="a", loop_argument='{"a": 1}'), ("JSON list",)),
    "loop element": (lambda: ContainerStep(name="a", loop_argument=[True]), ("element True",)),
    "after nothing": (lambda: ContainerStep(name="a").after(), ("names nothing",)),
    "after a text": (lambda: ContainerStep(name="a").after("b"), ("'b'",)),  # type: ignore[arg-type]
    "empty dag": (lambda: DAG(name="empty"), ("no step in DAG[empty]",)),
    "empty pipeline": (lambda: None, ("no step or DAG in Pipeline[p]",)),
    "strategy": (lambda: FailureOptions("slow"), ("'slow'",)),
    "retry": (lambda: Retry(-1), ("times is -1",)),
    "timeout": (lambda: ContainerStep(name="a", timeout=0), ("timeout", "above 0")),
    "extra fs": (lambda: ContainerStep(name="a", extra_fs="x"), ("extra_fs is 'x'",)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_mistake_is_refused_by_name(name: str) -> None:
    build, words = REFUSED[name]
    refused(build, *words)


def test_cycles_are_refused() -> None:
    def build() -> None:
        a = ContainerStep(name="a", command="a", parameters={"x": 1})
        b = ContainerStep(name="b", command="b", parameters={"x": a.parameters["x"]})
        a.after(b)

    refused(build, "cycle", "a, b")


def test_parameters_never_come_out_of_a_dag() -> None:
    def build() -> None:
        with DAG(name="inner"):
            a = ContainerStep(name="a", command="a", parameters={"x": 1})
        ContainerStep(name="b", command="b", parameters={"x": a.parameters["x"]})

    refused(build, "Step[b]", "parameter x of PF-ENTRY-POINT.inner.a", "siblings")


def test_a_loop_item_is_its_owners_and_of_what_is_inside() -> None:
    def outside() -> None:
        a = ContainerStep(name="a", command="a", loop_argument=[1])
        assert a.loop_argument
        ContainerStep(name="b", command=f"b {a.loop_argument.item}")

    def own_parameter() -> None:
        a = ContainerStep(name="a", command="a", loop_argument=[1])
        assert a.loop_argument
        a.parameters["x"] = a.loop_argument.item

    def own_output() -> None:
        a = ContainerStep(name="a", command="a", outputs={"x": Artifact()})
        a.loop_argument = a.outputs["x"]

    refused(outside, "loop item of PF-ENTRY-POINT.a")
    refused(own_parameter, "own loop item")
    refused(own_output, "own output x")


def test_texts_that_refer_wrongly_are_refused() -> None:
    def unknown() -> None:
        ContainerStep(name="train", command="a", parameters={"rate": 1})
        ContainerStep(name="b", command="b {{parameter: PF-ENTRY-POINT.trian.rate}}")

    def unknown_name() -> None:
        ContainerStep(name="train", command="a", parameters={"rate": 1})
        ContainerStep(name="b", command="b {{parameter: PF-ENTRY-POINT.train.rat}}")

    def artifact_in_env() -> None:
        a = ContainerStep(name="a", command="a", outputs={"x": Artifact()})
        ContainerStep(name="b", command="b", env={"X": str(a.outputs["x"])})

    def loop_with_more() -> None:
        a = ContainerStep(name="a", command="a", parameters={"x": [1]})
        ContainerStep(name="b", command="b", loop_argument=f"{a.parameters['x']}!")

    refused(unknown, "PF-ENTRY-POINT.trian", "did you mean PF-ENTRY-POINT.train?")
    refused(unknown_name, "[rat]", "did you mean rate?")
    refused(artifact_in_env, "env cannot refer to artifact x")
    refused(loop_with_more, "whole text")


def test_components_of_another_pipeline_are_refused() -> None:
    elsewhere: list[ContainerStep] = []

    def one() -> None:
        elsewhere.append(ContainerStep(name="a", command="a", outputs={"x": Artifact()}, parameters={"p": 1}))

    Pipeline(name="q", docker_env="image")(one)()
    refused(
        lambda: ContainerStep(name="b", command="b", inputs={"x": elsewhere[0].outputs["x"]}),
        "PF-ENTRY-POINT.a",
        "not part",
    )

    def same_name() -> None:
        ContainerStep(name="a", command="a", outputs={"x": Artifact()})
        ContainerStep(name="b", command="b").after(elsewhere[0])

    refused(same_name, "another pipeline")


def test_an_image_must_come_from_somewhere() -> None:
    def build() -> None:
        with DAG(name="d"):
            ContainerStep(name="a", command="a")

    refused(build, "ContainerStep[a] has no docker_env", docker_env=None)


POST: dict[str, tuple[Callable[[], Any], str]] = {
    "condition": (lambda: ContainerStep(name="after", condition="1 > 0"), "condition"),
    "loop": (lambda: ContainerStep(name="after", loop_argument=[1]), "loop_argument"),
    "cache": (lambda: ContainerStep(name="after", cache_options=CacheOptions()), "cache_options"),
    "name": (lambda: ContainerStep(name="a"), "name of a component"),
}


@pytest.mark.parametrize("name", POST)
def test_a_post_process_has_its_own_rules(name: str) -> None:
    make, words = POST[name]
    made = Pipeline(name="p", docker_env="i")(lambda: ContainerStep(name="a", command="a"))()
    made.set_post_process(make())
    with pytest.raises(PaddleFlowSDKException, match=words):
        made.compile()


def test_a_post_process_refers_to_nobody() -> None:
    kept: list[ContainerStep] = []
    made = Pipeline(name="p", docker_env="i")(
        lambda: kept.append(ContainerStep(name="a", command="a", parameters={"x": 1}))
    )()
    made.set_post_process(ContainerStep(name="after", command=f"echo {kept[0].parameters['x']}"))
    with pytest.raises(PaddleFlowSDKException, match="not part of this pipeline"):
        made.compile()
    with pytest.raises(PaddleFlowSDKException, match="must be a step"):
        made.set_post_process("x")  # type: ignore[arg-type]


def test_names_and_parallelism_of_a_pipeline() -> None:
    with pytest.raises(PaddleFlowSDKException, match=r"pipeline name\[a b\]"):
        Pipeline(name="a b")
    with pytest.raises(PaddleFlowSDKException, match="parallelism is 0"):
        Pipeline(name="a", parallelism=0)
    assert PF_LOOP_ARGUMENT == "{{PF_LOOP_ARGUMENT}}"
