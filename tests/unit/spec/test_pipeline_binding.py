"""What a run asks for, applied to its pipeline: parameters, disabled steps, image, storage, strategy; all faults at once."""

from __future__ import annotations

from typing import Any

import pytest

from paddleflow.errors import Invalid
from paddleflow.spec.pipeline.document import read
from paddleflow.spec.pipeline.model import Dag, FsMount, Parameter, Pipeline, Step
from paddleflow.spec.pipeline.run_request import RunRequest, bind
from tests import pipeline_documents as documents

PARAMETERS = """
name: p
docker_env: all:1
entry_points:
  a:
    command: x
    docker_env: own:1
    parameters:
      free: 1
      s: {type: string, default: x}
      i: {type: int, default: 1}
      f: {type: float, default: 1.5}
      l: {type: list, default: [1]}
      p: {type: path, default: ./x}
  d:
    deps: a
    parameters: {free: 2}
    entry_points:
      e:
        command: x
        parameters: {free: "{{PF_PARENT.free}}", only: 1}
  g: {command: x, deps: a, parameters: {up: "{{a.free}}"}}
post_process:
  after: {command: x, parameters: {free: 3, last: 4}}
"""


def bound(parameters: dict[str, Any], document: str = PARAMETERS) -> Pipeline:
    return bind(read(document), RunRequest(parameters=parameters))


def parameter(pipeline: Pipeline, path: str) -> Parameter:
    *names, last = path.split(".")
    if names == ["after"]:
        assert pipeline.post_process
        return pipeline.post_process.parameters[last]
    component = pipeline.entry_points[names[0]]
    for name in names[1:]:
        assert isinstance(component, Dag)
        component = component.children[name]
    return component.parameters[last]


def faults(request: RunRequest, document: str = PARAMETERS) -> list[tuple[str, str, str]]:
    with pytest.raises(Invalid) as caught:
        bind(read(document), request)
    assert caught.value.code == "InvalidPipeline"
    return [(fault.where, fault.message, fault.hint) for fault in caught.value.details]


def test_a_name_means_every_component_that_has_it() -> None:
    pipeline = bound({"free": "new"})
    found = [parameter(pipeline, path).value for path in ("a.free", "d.free", "d.e.free", "after.free")]
    assert found == ["new", "new", "new", "new"]
    assert parameter(pipeline, "d.e.only").value == 1


def test_a_full_name_means_one_and_wins() -> None:
    pipeline = bound({"free": "all", "d.e.free": 7, "after.last": [1, 2]})
    assert parameter(pipeline, "a.free").value == "all"
    assert parameter(pipeline, "d.e.free").value == 7
    assert parameter(pipeline, "after.last").value == [1, 2]


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("i", 5, 5), ("i", "5", 5), ("i", 5.0, 5), ("i", "{{PF_LOOP_ARGUMENT}}", "{{PF_LOOP_ARGUMENT}}"),
        ("f", 5, 5), ("f", "0.1", 0.1), ("f", "1e-3", 0.001), ("s", "y", "y"), ("s", 5, "5"),
        ("l", [1, "a"], [1, "a"]), ("l", '[1, "a"]', [1, "a"]), ("p", "/a/b_c-d.e", "/a/b_c-d.e"),
        ("free", "x", "x"), ("free", 0.5, 0.5), ("free", [1], [1]), ("free", "run-{{PF_RUN_ID}}", "run-{{PF_RUN_ID}}"),
    ],
)  # fmt: skip
def test_values_of_the_stated_type(name: str, given: Any, expected: Any) -> None:
    found = parameter(bound({f"a.{name}": given}), f"a.{name}").value
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("given", "where", "message", "hint"),
    [
        ({"fre": 1}, "parameters.fre", "param[fre] not exist", "did you mean free?"),
        ({"a.fre": 1}, "parameters.a.fre", "param[a.fre] not exist", "did you mean a.free?"),
        ({"b.free": 1}, "parameters.b.free", "param[b.free] not exist", "did you mean"),
        ({"d.e.free.x": 1}, "parameters.d.e.free.x", "param[d.e.free.x] not exist", ""),
        ({"": 1}, "parameters.", "param[] not exist", ""),
        ({"i": "x"}, "parameters.i", "invalid type for param[i]: expect type[int], found text [x]", ""),
        ({"i": 1.5}, "parameters.i", "expect type[int], found a number [1.5]", ""),
        ({"i": True}, "parameters.i", "expect type[int], found a boolean [True]", ""),
        ({"f": "x"}, "parameters.f", "expect type[float]", ""),
        ({"s": [1]}, "parameters.s", "expect type[string], found a list", ""),
        ({"l": "1,2"}, "parameters.l", "expect type[list], found text [1,2]", ""),
        ({"p": "a b"}, "parameters.p", "invalid path value[a b] in parameter[p]", ""),
        ({"free": True}, "parameters.free", "type[bool] is not supported for param[free]", 'write it as text: "true"'),
        ({"free": None}, "parameters.free", "param[free] has no value", ""),
        ({"free": {"a": 1}}, "parameters.free", "type[a map] is not supported for param[free]", ""),
        ({"free": 10**400}, "parameters.free", "the number of param[free] has more than 64 bits", ""),
        ({"free": float("nan")}, "parameters.free", "the number nan is not supported for param[free]", ""),
        ({"free": [float("inf")]}, "parameters.free", "the number inf is not supported", ""),
        ({"g.up": "{{b.free}}"}, "parameters.g.up", "component[b] not exist", ""),
        ({"g.up": "{{d.free}}"}, "parameters.g.up", "component[d] not in deps", ""),
        ({"g.up": "{{a.nothing}}"}, "parameters.g.up", "component[a] has no parameter [nothing]", ""),
    ],
)
def test_parameters_that_cannot_be(given: dict[str, Any], where: str, message: str, hint: str) -> None:
    found = faults(RunRequest(parameters=given))
    assert [each[0] for each in found] == [where]
    assert message in found[0][1]
    assert hint in found[0][2]


def test_no_parameter_at_all() -> None:
    found = faults(RunRequest(parameters={"x": 1}), "name: p\nentry_points: {a: {command: x}}")
    assert found == [("parameters.x", "param[x] not exist", "the pipeline has no parameters")]


def test_everything_at_once() -> None:
    request = RunRequest({"i": "x", "nope": 1}, ["a", "z"], "i.tar", "no/fs", "slow", "1 name")
    found = faults(request)
    assert sorted(each[0] for each in found) == [
        "disabled", "disabled", "dockerEnv", "failureOptions.strategy", "fsName", "name", "parameters.i", "parameters.nope",
    ]  # fmt: skip
    assert any("disabled component[z] not existed" in each[1] for each in found)
    assert any("disabled component[a] is referred by component[g]" in each[1] for each in found)


def test_images() -> None:
    def images(pipeline: Pipeline) -> list[str]:
        first, inner = pipeline.entry_points["a"], pipeline.entry_points["d"]
        assert isinstance(first, Step)
        assert isinstance(inner, Dag)
        assert pipeline.post_process
        last = inner.children["e"]
        assert isinstance(last, Step)
        return [first.docker_env, last.docker_env, pipeline.post_process.docker_env, pipeline.docker_env]

    pipeline = read(PARAMETERS)
    assert images(pipeline) == ["own:1", "", "", "all:1"]
    assert images(bind(pipeline)) == ["own:1", "all:1", "all:1", "all:1"]
    assert images(bind(pipeline, RunRequest(docker_env="run:1"))) == ["own:1", "run:1", "run:1", "run:1"]


def test_storage_of_the_run() -> None:
    without = read("name: p\nentry_points: {a: {command: x, artifacts: {output: [o]}}}")
    assert bind(without, RunRequest(fs_name="ppl")).main_fs == FsMount("ppl")
    document = read(documents.ARTIFACTS)
    assert bind(document, RunRequest(fs_name="ppl")).main_fs == FsMount("ppl", "/home/paddleflow/mnt", "a/b")
    found = faults(RunRequest(fs_name="else"), documents.ARTIFACTS)
    assert found[0][1] == "fsName[else] of the run and main_fs[ppl] of the document must be the same"


def test_artifacts_need_a_storage_wherever_they_stand() -> None:
    document = """
name: p
entry_points:
  a: {command: x, artifacts: {output: [o]}}
  d:
    deps: a
    artifacts: {input: {i: "{{a.o}}"}}
    entry_points: {e: {command: x, artifacts: {input: {i: "{{PF_PARENT.i}}"}}}}
post_process:
  z: {command: x, artifacts: {output: [o]}}
"""
    found = faults(RunRequest(), document)
    assert [(each[0], each[1]) for each in found] == [
        ("4:3 entry_points.a", "cannot define artifact in component[a] with no Fs mounted"),
        ("5:3 entry_points.d", "cannot define artifact in component[d] with no Fs mounted"),
        ("8:20 entry_points.d.e", "cannot define artifact in component[e] with no Fs mounted"),
        ("10:3 post_process.z", "cannot define artifact in component[z] with no Fs mounted"),
    ]


def test_scopes_may_name_the_storage_of_the_run() -> None:
    pipeline = read("name: p\nentry_points: {a: {command: x, cache: {fs_scope: [{name: ppl}]}}}")
    assert bind(pipeline, RunRequest(fs_name="ppl")).main_fs == FsMount("ppl")
    with pytest.raises(Invalid, match=r"fs_name \[ppl\] in fs_scope must also be in"):
        bind(pipeline, RunRequest(fs_name="other"))


def test_strategy_and_disabled_of_the_run_replace_the_document() -> None:
    pipeline = bind(read(documents.ARTIFACTS), RunRequest(strategy="fail_fast", disabled=[" mail", ""]))
    assert pipeline.strategy == "fail_fast"
    assert pipeline.disabled == {"mail"}


@pytest.mark.parametrize(
    ("disabled", "message"),
    [
        (["d.e", "d.e"], "disabled component[d.e] is set repeatedly"),
        (["d.x"], "disabled component[d.x] not existed"),
        (["entry_points.d"], "disabled component[entry_points.d] not existed"),
        (["a"], "disabled component[a] is referred by component[g]"),
    ],
)
def test_disabled_that_cannot_be(disabled: list[str], message: str) -> None:
    assert faults(RunRequest(disabled=disabled))[0][1] == message


def test_disabled_that_can_be() -> None:
    pipeline = read(PARAMETERS)
    for names in (["d"], ["d.e"], ["g"], ["after"], ["a", "g"], ["d", "d.e"]):
        assert bind(pipeline, RunRequest(disabled=names)).disabled == set(names)


def test_binding_leaves_the_pipeline_alone() -> None:
    pipeline = read(PARAMETERS)
    bind(pipeline, RunRequest(parameters={"free": 9}, docker_env="x:1"))
    assert pipeline == read(PARAMETERS)
