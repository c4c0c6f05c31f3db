"""Pipelines as teams wrote them for the original: unedited, they mean here what they meant there."""

from __future__ import annotations

from hashlib import md5

import pytest

from paddleflow.errors import Invalid
from paddleflow.spec.pipeline.document import read, read_json
from paddleflow.spec.pipeline.model import CONTINUE, Dag, Parameter, Step
from paddleflow.spec.pipeline.run_request import RunRequest, bind
from tests import pipeline_documents as documents

COMPILED = """
docker_env: python:3.7
entry_points:
  randint:
    artifacts: {output: [random_num]}
    command: cd /process && python3 randint.py {{num}} {{lower}} {{upper}}
    parameters: {lower: -10, num: 10, upper: {default: 10, type: int}}
    type: step
  process:
    artifacts:
      input: {dsl_art_7xdr2flwyilfjg72ff37umhvs: '{{randint.random_num}}'}
      output: {dsl_art_c0d72y50tepmdtv2ra6w9frp5: '{{collector.nums}}'}
    deps: randint
    entry_points:
      collector:
        artifacts:
          input: {loop_art_7xdr2flwyilfjg72ff37umhvs: '{{PF_PARENT.dsl_art_7xdr2flwyilfjg72ff37umhvs}}'}
          output: [nums]
        command: python3 process.py {{PF_LOOP_ARGUMENT}}
        loop_argument: '{{loop_art_7xdr2flwyilfjg72ff37umhvs}}'
        type: step
    type: dag
  sum:
    artifacts:
      input: {nums: '{{process.dsl_art_c0d72y50tepmdtv2ra6w9frp5}}'}
    command: echo {{nums}}
    deps: process
    type: step
fs_options:
  main_fs: {name: ppl}
name: loop_example
parallelism: 5
"""


def test_what_the_dsl_compiles() -> None:
    pipeline = bind(read(COMPILED))
    process = pipeline.entry_points["process"]
    assert isinstance(process, Dag)
    collector = process.children["collector"]
    assert collector.loop_argument == "{{loop_art_7xdr2flwyilfjg72ff37umhvs}}"
    assert pipeline.entry_points["randint"].parameters["upper"] == Parameter(10, "int")


@pytest.mark.parametrize("wish", [("", 10), ("parallelism: 0", 10), ("parallelism: 5", 5), ("parallelism: 100", 20)])
def test_parallelism(wish: tuple[str, int]) -> None:
    assert read(f"name: p\nentry_points: {{a: {{command: x}}}}\n{wish[0]}").parallelism == wish[1]


def test_expiry_as_text_or_number() -> None:
    for text in ("300", "'300'"):
        assert (
            read(
                f"name: p\ncache: {{max_expired_time: {text}}}\nentry_points: {{a: {{command: x}}}}"
            ).cache.max_expired_time
            == 300
        )


def test_a_name_key_in_a_step_is_ignored() -> None:
    step = read("name: p\nentry_points: {a: {name: other, command: x}}").entry_points["a"]
    assert step.name == "a"


def test_queue_flavour_and_type_of_a_step_become_variables() -> None:
    step = read(
        "name: p\nentry_points: {a: {command: x, queue: q, flavour: f, job_type: single, env: {PF_JOB_FLAVOUR: g}}}"
    ).entry_points["a"]
    assert isinstance(step, Step)
    assert step.env == {"PF_JOB_FLAVOUR": "g", "PF_JOB_QUEUE_NAME": "q", "PF_JOB_TYPE": "single"}


def test_camel_case_is_known_in_yaml_as_well() -> None:
    pipeline = read(
        "name: p\ndockerEnv: i\nentryPoints: {a: {command: x, loopArgument: [1]}}\nfailureOptions: {strategy: continue}"
    )
    assert (pipeline.docker_env, pipeline.strategy) == ("i", CONTINUE)
    assert pipeline.entry_points["a"].loop_argument == [1]


def test_other_programs_templates_are_text() -> None:
    step = read("name: p\nentry_points: {a: {command: \"docker inspect -f '{{.State}}' {{ a.b.c }}\"}}").entry_points[
        "a"
    ]
    assert isinstance(step, Step)
    assert step.command == "docker inspect -f '{{.State}}' {{ a.b.c }}"


def test_deps_with_blanks_and_empty_parts() -> None:
    pipeline = read("name: p\nentry_points: {a: {command: x}, b: {command: x}, c: {command: x, deps: ' a , ,b,'}}")
    assert pipeline.entry_points["c"].deps == ("a", "b")


def test_a_step_with_outputs_as_a_map() -> None:
    step = read("name: p\nentry_points: {a: {command: x, artifacts: {output: {o: ''}}}}").entry_points["a"]
    assert step.outputs == ("o",)


def test_a_list_parameter_with_its_type_is_accepted() -> None:
    """The original refuses it always, by mistake."""
    step = read(
        "name: p\nentry_points: {a: {command: x, parameters: {l: {type: list, default: [1, a]}}}}"
    ).entry_points["a"]
    assert step.parameters["l"] == Parameter([1, "a"], "list")


def test_nested_references_in_post_process_end() -> None:
    """The original never comes back."""
    pipeline = read(
        "name: p\nentry_points: {a: {command: x}}\npost_process: {z: {reference: {component: c}}}\n"
        "components: {c: {reference: {component: d}}, d: {reference: {component: e}}, e: {command: last, cache: {enable: true}}}"
    )
    assert pipeline.post_process
    assert pipeline.post_process.command == "last"
    assert not pipeline.post_process.cache.enable


def test_messages_that_people_search_for() -> None:
    for document, message in (
        ("name: p\nentry_points: {a: {command: x}}\nx: 1", "workflow has no attribute [x]"),
        (
            "name: p\nentry_points: {x: {command: x, artifacts: {output: [o]}}}",
            "cannot define artifact in component[x] with no Fs mounted",
        ),
    ):
        with pytest.raises(Invalid) as caught:
            bind(read(document))
        assert message in caught.value.message
    with pytest.raises(Invalid, match=r"param\[x\] not exist"):
        bind(read(documents.BASE), RunRequest(parameters={"x": 1}))


def test_runjson_refuses_what_it_does_not_know() -> None:
    document = {"name": "p", "entryPoints": {"a": {"command": "x"}}}
    assert read_json({**document, "description": "d"}).name == "p"
    unknown: list[dict[str, object]] = [{"desc": "d"}, {"entryPoint": {}}, {"fsOptions": {"mainFs1": {}}}]
    for more in unknown:
        with pytest.raises(Invalid, match="has no attribute"):
            read_json({**document, **more})


def test_the_name_that_artifact_paths_are_made_of() -> None:
    """`<pipeline>.entry_points.<step>`, as the original hashes it."""
    name = read(documents.ARTIFACTS).name
    assert md5(f"{name}.entry_points.preprocess".encode()).hexdigest() == "037175363b6ef656300d85b2821919a1"


@pytest.mark.parametrize(
    ("field", "fault"),
    [
        ("env: {invalid-name: x}", r"environment variable name\[invalid-name\] is invalid"),
        ("env: {a.b: x}", r"environment variable name\[a.b\] is invalid"),
        ('parameters: {p: "{{ .refSystem }}"}', r"unsupported SysParamName\[refSystem\] for param\[p\]"),
        ('parameters: {p: "before {{.refSystem}}"}', r"unsupported SysParamName\[refSystem\] for param\[p\]"),
    ],
)
def test_what_the_original_refuses_is_refused(field: str, fault: str) -> None:
    with pytest.raises(Invalid, match=fault):
        read(f"name: p\nentry_points: {{a: {{command: x, {field}}}}}")
