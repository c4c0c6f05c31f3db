"""Pipelines written in Python: what they compile to, and which mistakes are refused with which words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddleflow import PaddleFlowSDKException
from paddleflow.pipeline import (
    DAG,
    FAIL_CONTINUE,
    PF_RUN_ID,
    Artifact,
    CacheOptions,
    ContainerStep,
    ExtraFS,
    FailureOptions,
    FSOptions,
    FSScope,
    JobStep,
    MainFS,
    Member,
    Parameter,
    Pipeline,
    Retry,
)
from paddleflow.pipeline.names import code


def compiled(build: Callable[[], object], **options: Any) -> dict[str, Any]:
    """The components that `build` makes, compiled."""
    made = Pipeline(name="p", docker_env=options.pop("docker_env", "image"), **options)(build)()
    found = made.compile()
    assert made.compile() == found, "compiling twice gives the same"
    return found


def components(build: Callable[[], object]) -> dict[str, Any]:
    found: dict[str, Any] = compiled(build)["entry_points"]
    return found


def test_codes_are_md5_in_base_36() -> None:
    assert code("PF-ENTRY-POINT.randint", "random_num") == "7xdr2flwyilfjg72ff37umhvs"
    assert code("PF-ENTRY-POINT.process.collector", "nums") == "c0d72y50tepmdtv2ra6w9frp5"


def test_artifacts_cross_the_borders_of_a_dag_under_the_names_that_they_always_had() -> None:
    def build() -> None:
        randint = ContainerStep(name="randint", command="r", outputs={"random_num": Artifact()})
        with DAG(name="process"):
            split = ContainerStep(
                name="split", command="s", inputs={"nums": randint.outputs["random_num"]}, outputs={"part": Artifact()}
            )
            collector = ContainerStep(
                name="collector",
                command="c",
                inputs={"part": split.outputs["part"]},
                outputs={"collection": Artifact()},
            )
        ContainerStep(name="sum", command="s", inputs={"nums": collector.outputs["collection"]})

    found = components(build)
    coming, leaving = "dsl_art_7xdr2flwyilfjg72ff37umhvs", "dsl_art_c0d72y50tepmdtv2ra6w9frp5"
    assert found["process"]["artifacts"] == {
        "input": {coming: "{{randint.random_num}}"},
        "output": {leaving: "{{collector.collection}}"},
    }
    assert found["process"]["deps"] == "randint"
    inner = found["process"]["entry_points"]
    assert inner["split"]["artifacts"]["input"] == {"nums": f"{{{{PF_PARENT.{coming}}}}}"}
    assert "deps" not in inner["split"]
    assert inner["collector"]["deps"] == "split"
    assert found["sum"]["artifacts"]["input"] == {"nums": f"{{{{process.{leaving}}}}}"}
    assert found["sum"]["deps"] == "process"


def test_two_artifacts_that_leave_for_inputs_of_one_name_stay_apart() -> None:
    def build() -> None:
        with DAG(name="inner"):
            both = ContainerStep(name="both", command="b", outputs={"x": Artifact(), "y": Artifact()})
        ContainerStep(name="one", command="o", inputs={"data": both.outputs["x"]})
        ContainerStep(name="two", command="t", inputs={"data": both.outputs["y"]})

    found = components(build)
    outputs = found["inner"]["artifacts"]["output"]
    taken = {
        name: outputs[found[name]["artifacts"]["input"]["data"].strip("{}").split(".")[1]] for name in ("one", "two")
    }
    assert taken == {"one": "{{both.x}}", "two": "{{both.y}}"}


def test_an_artifact_goes_out_of_nested_dags_and_into_others() -> None:
    def build() -> None:
        with DAG(name="a"), DAG(name="b"):
            made = ContainerStep(name="make", command="m", outputs={"x": Artifact()})
        with DAG(name="c"), DAG(name="d"):
            ContainerStep(name="use", command="u", inputs={"y": made.outputs["x"]})

    found = components(build)
    out = found["a"]["artifacts"]["output"]
    (outer,) = out
    inner = found["a"]["entry_points"]["b"]["artifacts"]["output"]
    assert out[outer] == "{{b." + next(iter(inner)) + "}}"
    assert list(inner.values()) == ["{{make.x}}"]
    own = f"dsl_art_{code('PF-ENTRY-POINT.a.b.make', 'x')}"
    assert found["c"]["artifacts"]["input"] == {own: f"{{{{a.{outer}}}}}"}
    assert found["c"]["entry_points"]["d"]["artifacts"]["input"] == {own: f"{{{{PF_PARENT.{own}}}}}"}
    assert outer == f"dsl_art_{code('PF-ENTRY-POINT.a.b.make', own)}"
    assert found["c"]["deps"] == "a"


def test_parameters_are_carried_into_dags() -> None:
    def build() -> None:
        first = ContainerStep(name="first", command="f", parameters={"epochs": 5})
        with DAG(name="outer"), DAG(name="inner"):
            ContainerStep(name="use", command="u", parameters={"n": first.parameters["epochs"]})
            ContainerStep(name="say", command=f"echo {first.parameters['epochs']}")

    found = components(build)
    own = code("PF-ENTRY-POINT.first", "epochs")
    outer = found["outer"]
    assert outer["parameters"] == {f"dsl_param_{own}": "{{first.epochs}}"}
    assert outer["deps"] == "first"
    inner = outer["entry_points"]["inner"]
    assert inner["parameters"] == {f"dsl_param_{own}": f"{{{{PF_PARENT.dsl_param_{own}}}}}"}
    assert inner["entry_points"]["use"]["parameters"] == {"n": f"{{{{PF_PARENT.dsl_param_{own}}}}}"}
    assert inner["entry_points"]["say"] == {
        "type": "step",
        "parameters": {f"command_param_{own}": f"{{{{PF_PARENT.dsl_param_{own}}}}}"},
        "command": f"echo {{{{command_param_{own}}}}}",
    }


def test_parameters_of_a_dag_reach_what_is_inside_at_any_depth() -> None:
    def build() -> None:
        with DAG(name="outer") as outer:
            outer.parameters["rate"] = Parameter(0.5)
            ContainerStep(name="near", command="n", parameters={"r": outer.parameters["rate"]})
            with DAG(name="inner"):
                ContainerStep(name="far", command=f"f {outer.parameters['rate']}")

    found = components(build)["outer"]
    assert found["parameters"] == {"rate": {"default": 0.5}}
    assert found["entry_points"]["near"]["parameters"] == {"r": "{{PF_PARENT.rate}}"}
    own = code("PF-ENTRY-POINT.outer", "rate")
    assert found["entry_points"]["inner"]["parameters"] == {f"dsl_param_{own}": "{{PF_PARENT.rate}}"}


def test_references_in_texts_become_parameters_and_inputs() -> None:
    def build() -> None:
        made = ContainerStep(name="made", command="m", parameters={"n": 1}, outputs={"x": Artifact()})
        use = ContainerStep(
            name="use",
            command=f"u {made.parameters['n']} {made.outputs['x']}",
            env={"N": made.parameters["n"]},
            condition=f"{made.parameters['n']} > 0",
            loop_argument=made.outputs["x"],
        )
        use.command = f"{use.command} {PF_RUN_ID} {use.loop_argument.item if use.loop_argument else ''}"

    found = components(build)["use"]
    n, x = code("PF-ENTRY-POINT.made", "n"), code("PF-ENTRY-POINT.made", "x")
    assert found == {
        "deps": "made",
        "condition": f"{{{{condition_param_{n}}}}} > 0",
        "loop_argument": f"{{{{loop_art_{x}}}}}",
        "type": "step",
        "parameters": {f"{prefix}_param_{n}": "{{made.n}}" for prefix in ("command", "env", "condition")},
        "artifacts": {"input": {f"command_art_{x}": "{{made.x}}", f"loop_art_{x}": "{{made.x}}"}},
        "command": (f"u {{{{command_param_{n}}}}} {{{{command_art_{x}}}}} {{{{PF_RUN_ID}}}} {{{{PF_LOOP_ARGUMENT}}}}"),
        "env": {"N": f"{{{{env_param_{n}}}}}"},
    }


def test_the_item_of_a_loop_around_reaches_steps_at_any_depth() -> None:
    def build() -> None:
        with DAG(name="each", loop_argument=[[1], [2]]) as each:
            assert each.loop_argument
            item = each.loop_argument.item
            ContainerStep(name="near", command=f"n {item}", parameters={"i": item})
            with DAG(name="deep"):
                ContainerStep(name="far", command="f", loop_argument=item)

    found = components(build)["each"]
    own = code("PF-ENTRY-POINT.each", "PF_LOOP_ARGUMENT")
    assert found["loop_argument"] == [[1], [2]]
    near = found["entry_points"]["near"]
    assert near["parameters"] == {
        "i": "{{PF_PARENT.PF_LOOP_ARGUMENT}}",
        f"command_param_{own}": "{{PF_PARENT.PF_LOOP_ARGUMENT}}",
    }
    deep = found["entry_points"]["deep"]
    assert deep["parameters"] == {f"dsl_param_{own}": "{{PF_PARENT.PF_LOOP_ARGUMENT}}"}
    far = deep["entry_points"]["far"]
    assert far["loop_argument"] == f"{{{{loop_param_{own}}}}}"
    assert far["parameters"] == {f"loop_param_{own}": f"{{{{PF_PARENT.dsl_param_{own}}}}}"}


def test_dependencies_are_lifted_to_where_both_stand() -> None:
    def build() -> None:
        with DAG(name="a"):
            inner = ContainerStep(name="x", command="x")
        with DAG(name="b"):
            ContainerStep(name="y", command="y").after(inner)
            ContainerStep(name="z", command="z")
        last = ContainerStep(name="last", command="l")
        assert last.after(inner) is last

    found = components(build)
    assert found["b"]["deps"] == "a"
    assert found["last"]["deps"] == "a"
    assert "deps" not in found["b"]["entry_points"]["y"]


def test_a_whole_pipeline(tmp_path: Path) -> None:
    @Pipeline(
        name="whole",
        parallelism=3,
        docker_env="image:1",
        env={"A": "pipeline", "B": "pipeline"},
        cache_options=CacheOptions(enable=True, fs_scope=FSScope("main", "/code,/data"), max_expired_time=600),
        failure_options=FailureOptions(FAIL_CONTINUE),
        fs_options=FSOptions(MainFS("main", mount_path="/m"), ExtraFS("more", sub_path="s", read_only=True)),
    )
    def whole(epochs: Any) -> None:
        ContainerStep(
            name="train",
            command="train {{epochs}}",
            parameters={"epochs": epochs, "rate": Parameter("1", float)},
            env={"B": "step"},
            docker_env="image:2",
            cache_options=CacheOptions(),
            extra_fs=ExtraFS("more"),
            outputs={"b": Artifact(), "a": Artifact()},
            retry=Retry(3, delay=0.5, exit_codes=[1, 137]),
            timeout=90,
        )

    made = whole(Parameter(5, "int"))
    made.set_post_process(ContainerStep(name="mail", command="mail"))
    found = made.compile(str(tmp_path / "deep" / "run.yaml"))
    assert yaml.safe_load((tmp_path / "deep" / "run.yaml").read_text()) == found == WHOLE
    made.compile(tmp_path / "run.json")
    assert json.loads((tmp_path / "run.json").read_text()) == found


WHOLE = {
    "entry_points": {
        "train": {
            "type": "step",
            "parameters": {
                "epochs": {"default": 5, "type": "int"},
                "rate": {"default": 1.0, "type": "float"},
            },
            "artifacts": {"output": ["a", "b"]},
            "command": "train {{epochs}}",
            "docker_env": "image:2",
            "env": {"A": "pipeline", "B": "step"},
            "cache": {"enable": False, "max_expired_time": -1},
            "extra_fs": [{"name": "more", "read_only": False}],
            "retry": {"times": 3, "delay": 0.5, "exit_codes": [1, 137]},
            "timeout": 90,
        }
    },
    "post_process": {
        "mail": {"type": "step", "command": "mail", "env": {"A": "pipeline", "B": "pipeline"}},
    },
    "docker_env": "image:1",
    "name": "whole",
    "cache": {
        "enable": True,
        "fs_scope": [{"name": "main", "path": "/code,/data"}],
        "max_expired_time": 600,
    },
    "failure_options": {"strategy": "continue"},
    "parallelism": 3,
    "fs_options": {
        "main_fs": {"name": "main", "mount_path": "/m"},
        "extra_fs": [{"name": "more", "sub_path": "s", "read_only": True}],
    },
}


def test_a_file_must_say_what_it_is(tmp_path: Path) -> None:
    made = Pipeline(name="p", docker_env="i")(lambda: ContainerStep(name="a", command="a"))()
    with pytest.raises(PaddleFlowSDKException, match=r"run\.txt.*\.json, \.yaml, \.yml"):
        made.compile(tmp_path / "run.txt")


def test_a_pipeline_with_a_post_process_may_be_made_again_and_again() -> None:
    template = Pipeline(name="p", docker_env="i")
    template.set_post_process(ContainerStep(name="after", command="a"))
    build = template(lambda: ContainerStep(name="a", command="a"))
    assert build().compile() == build().compile()
    assert list(build().compile()["post_process"]) == ["after"]


def test_one_parameter_object_may_be_given_to_many_steps() -> None:
    shared = Parameter(1)

    def build() -> None:
        ContainerStep(name="a", command="a", parameters={"x": shared})
        ContainerStep(name="b", command="b", parameters={"x": shared})

    assert components(build)["b"]["parameters"] == {"x": {"default": 1}}


def test_a_step_without_command_is_a_step() -> None:
    assert components(lambda: ContainerStep(name="a")) == {"a": {"type": "step"}}


def test_a_job_step_is_a_job_document() -> None:
    def build() -> None:
        data = ContainerStep(name="data", command="d", parameters={"n": 3}, outputs={"set": Artifact()})
        JobStep(
            name="train",
            framework="paddle",
            members=[
                Member(
                    "worker",
                    2,
                    f"python train.py {data.outputs['set']}",
                    flavour="flavour1",
                    env={"N": data.parameters["n"]},
                )
            ],
            queue="team",
            outputs={"model": Artifact()},
            retry=1,
        )

    n, x = code("PF-ENTRY-POINT.data", "n"), code("PF-ENTRY-POINT.data", "set")
    found = compiled(build)["entry_points"]["train"]
    assert found == {
        "deps": "data",
        "type": "step",
        "parameters": {f"env_param_{n}": "{{data.n}}"},
        "artifacts": {"input": {f"command_art_{x}": "{{data.set}}"}, "output": ["model"]},
        "job": {
            "framework": "paddle",
            "schedulingPolicy": {"queue": "team"},
            "members": [
                {
                    "role": "worker",
                    "replicas": 2,
                    "flavour": {"name": "flavour1"},
                    "env": {"N": f"{{{{env_param_{n}}}}}"},
                    "command": f"python train.py {{{{command_art_{x}}}}}",
                }
            ],
        },
        "retry": {"times": 1},
    }
    assert "image" not in str(compiled(lambda: JobStep(name="j", command="x"), docker_env=None))
