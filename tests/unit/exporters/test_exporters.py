"""Pipelines for other engines: what comes out, and what is refused by name."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from paddleflow.errors import Invalid
from paddleflow.exporters import airflow, argo, jinja
from paddleflow.spec.pipeline.conditions import evaluate
from paddleflow.spec.pipeline.document import read
from paddleflow.spec.pipeline.model import Pipeline
from paddleflow.spec.pipeline.run_request import RunRequest, bind

EXAMPLES = Path(__file__).parents[3] / "examples"
FLOW = """\
name: flow
docker_env: python:3.11
parallelism: 4
fs_options: {main_fs: {name: data, mount_path: /mnt/data}}
entry_points:
  prepare:
    command: 'echo "{{word}} ${#HOME}" > {{out}}'
    parameters: {word: hello}
    artifacts: {output: [out]}
  train:
    deps: prepare
    loop_argument: "{{sizes}}"
    parameters: {sizes: [1, 2], lr: 0.1}
    command: 'cat {{inp}} > {{model}}; echo "{{lr}} {{PF_LOOP_ARGUMENT}} {{PF_RUN_ID}}" >> {{model}}'
    artifacts: {input: {inp: "{{prepare.out}}"}, output: [model]}
    retry: {times: 2, delay: 5, factor: 2, most: 60}
    timeout: 60
  report:
    deps: train
    condition: "{{n}} > 10 && {{kind}} == 'big' && '{{kind}}' != small"
    parameters: {n: 3, kind: big}
    command: echo {{n}} {{kind}}
  sub:
    deps: train,report
    parameters: {title: models}
    artifacts: {input: {models: "{{train.model}}"}, output: {all: "{{join.all}}"}}
    entry_points:
      join:
        parameters: {t: "{{PF_PARENT.title}}"}
        artifacts: {input: {models: "{{PF_PARENT.models}}"}, output: [all]}
        command: echo {{t}} {{models}} > {{all}}
  last:
    deps: sub
    artifacts: {input: {all: "{{sub.all}}"}}
    command: cp {{all}} result.txt
post_process:
  after: {command: echo done}
"""


def flow(text: str = FLOW, **request: Any) -> Pipeline:
    return bind(read(text), RunRequest(**request))


def manifest(text: str = FLOW, **request: Any) -> dict[str, Any]:
    return argo.export(flow(text, **request))[0]


def template(found: dict[str, Any], name: str) -> dict[str, Any]:
    matching: list[dict[str, Any]] = [item for item in found["spec"]["templates"] if item["name"] == name]
    assert len(matching) == 1
    return matching[0]


def command(found: dict[str, Any], name: str) -> str:
    text: str = template(found, name)["container"]["args"][0]
    return text.splitlines()[-1]


def step(**fields: Any) -> str:
    """A document of one step."""
    return json.dumps({"name": "one", "docker_env": "x", "entry_points": {"main": {"command": "true", **fields}}})


# ---- Argo ----------------------------------------------------------------------------------------------------------


def test_argo_tasks_depend_on_all_elements_of_a_loop() -> None:
    tasks = {task["name"]: task for task in template(manifest(), "main")["dag"]["tasks"]}
    assert list(tasks) == ["prepare", "train", "train-1", "report", "sub", "last"]
    assert tasks["report"]["depends"] == "train && train-1"
    assert tasks["sub"]["depends"] == "train && train-1 && report"
    assert "depends" not in tasks["prepare"]


def test_argo_parameters_can_be_changed_there_and_those_of_loops_cannot() -> None:
    found = manifest()
    given = {item["name"]: item["value"] for item in found["spec"]["arguments"]["parameters"]}
    assert given == {
        "prepare__word": "hello", "train__lr": "0.1", "report__n": "3", "report__kind": "big", "sub__title": "models",
        "user": "paddleflow", "claim-data": "data",
    }  # fmt: skip
    assert 'echo "{{workflow.parameters.prepare__word}} ${#HOME}" > /mnt/data/.pipeline/' in command(found, "prepare")
    assert 'echo "{{workflow.parameters.train__lr}} 2 {{workflow.name}}"' in command(found, "train-1")
    assert command(found, "sub-join").startswith("echo {{workflow.parameters.sub__title}} /mnt/data/.pipeline/")


def test_argo_conditions_are_its_own() -> None:
    task = next(item for item in template(manifest(), "main")["dag"]["tasks"] if item["name"] == "report")
    n, kind = "{{workflow.parameters.report__n}}", "{{workflow.parameters.report__kind}}"
    assert task["when"] == f"{n} > 10 && '{kind}' == 'big' && '{kind}' != small"


def test_argo_conditions_read_what_a_step_wrote() -> None:
    text = """\
name: judged
docker_env: x
fs_options: {main_fs: {name: data, mount_path: /mnt}}
entry_points:
  group:
    entry_points:
      judge: {command: echo, artifacts: {output: [verdict, rest]}}
      act:
        deps: judge
        artifacts: {input: {said: "{{judge.verdict}}"}}
        condition: "{{said}} > 3 || 'x{{said}}' == xy"
        command: echo
"""
    found = manifest(text)
    made = template(found, "group-judge")
    env = {item["name"]: item["value"] for item in made["container"]["env"]}
    assert made["outputs"] == {
        "parameters": [{"name": "verdict", "valueFrom": {"path": env["PF_OUTPUT_ARTIFACT_VERDICT"]}}]
    }
    act = template(found, "group")["dag"]["tasks"][1]
    value, quoted = act["when"].split(" || ")
    assert value.startswith("{{=let it = trim(tasks['judge'].outputs.parameters['verdict']);")
    assert value.endswith("}} > 3")
    assert quoted == "'x{{tasks.judge.outputs.parameters.verdict}}' == xy"


def test_argo_artifacts_have_the_platform_s_paths_and_loops_are_joined() -> None:
    found = manifest()
    env = {item["name"]: item["value"] for item in template(found, "sub-join")["container"]["env"]}
    first, second = env["PF_INPUT_ARTIFACT_MODELS"].split(",")
    assert first.startswith("/mnt/data/.pipeline/{{workflow.name}}/flow/train-0-")
    assert second.startswith("/mnt/data/.pipeline/{{workflow.name}}/flow/train-1-")
    assert env["PF_OUTPUT_ARTIFACT_ALL"] in command(found, "last")
    made = {item["name"]: item["value"] for item in template(found, "train-1")["container"]["env"]}
    assert made["PF_OUTPUT_ARTIFACT_MODEL"] == second


def test_argo_retry_timeout_strategy_and_end() -> None:
    found = manifest()
    train = template(found, "train")
    assert train["retryStrategy"] == {
        "limit": "2", "retryPolicy": "Always", "backoff": {"duration": "5s", "factor": "2", "cap": "60s"},
    }  # fmt: skip
    assert train["activeDeadlineSeconds"] == "60"
    assert (found["spec"]["onExit"], found["spec"]["parallelism"]) == ("after", 4)
    assert "failFast" not in template(found, "main")["dag"]
    assert template(manifest(strategy="continue"), "main")["dag"]["failFast"] is False
    codes = manifest(step(retry={"times": 1, "exit_codes": [3, 4]}))
    assert template(codes, "main-2")["retryStrategy"]["expression"] == "asInt(lastRetry.exitCode) in [3, 4]"


def test_argo_refuses_all_that_it_cannot_express_at_once() -> None:
    text = """\
name: bad
fs_options: {main_fs: {name: data}}
entry_points:
  a: {command: 'docker ps --format "{{.State}}"', docker_env: x, artifacts: {output: [list]}}
  b: {deps: a, command: echo, docker_env: x, artifacts: {input: {list: "{{a.list}}"}}, loop_argument: "{{list}}"}
  c:
    deps: a
    artifacts: {input: {list: "{{a.list}}"}}
    entry_points:
      in: {command: echo, docker_env: x, artifacts: {input: {l: "{{PF_PARENT.list}}"}}, condition: "{{l}} == x"}
  d: {command: echo}
  e: {docker_env: x, job: {framework: paddle, members: [{role: worker, replicas: 2, command: train}]}}
"""
    with pytest.raises(Invalid) as refused:
        argo.export(flow(text))
    messages = {fault.where: fault.message for fault in refused.value.details}
    assert messages == {
        "a": "text holds {{ outside a template, which Argo would interpret",
        "b": "loop_argument depends on artifact list, which is known only at run time",
        "c.in": "condition reads the content of artifact l, which no single step beside it makes",
        "d": "it has no image",
        "e": "job: a job of this platform (framework paddle) has no counterpart there",
    }


def test_what_is_disabled_or_has_nothing_to_loop_over_is_skipped() -> None:
    text = """\
name: some
docker_env: x
disabled: off,group
entry_points:
  off: {command: echo}
  group: {entry_points: {inner: {command: echo}}}
  none: {command: echo, loop_argument: []}
  on: {command: echo, deps: "off,group,none"}
"""
    tasks = {task["name"]: task for task in template(manifest(text), "main")["dag"]["tasks"]}
    assert [tasks[name].get("when") for name in ("off", "group", "none", "on")] == ["false", "false", "false", None]
    assert tasks["on"]["depends"] == "off && group && none"
    file = airflow.export(flow(text))[0]
    assert file.count("EmptyOperator(task_id=") == 3
    assert "Left out: its loop has no elements." in file


# ---- Airflow -------------------------------------------------------------------------------------------------------


def calls(text: str, kind: str) -> dict[str, dict[str, ast.expr]]:
    """The operators of a file by their task id."""
    found = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == kind:
            arguments = {item.arg: item.value for item in node.keywords if item.arg}
            name = arguments.get("task_id") or arguments.get("dag_id")
            assert isinstance(name, ast.Constant)
            found[str(name.value)] = arguments
    return found


def test_airflow_s_file_is_python_with_one_operator_for_each_task() -> None:
    text, notes = airflow.export(flow())
    tasks = calls(text, "BashOperator")
    assert set(tasks) == {"prepare", "train", "train-1", "report", "join", "last", "after"}
    assert "EmptyOperator(task_id" not in text
    assert ast.literal_eval(tasks["train"]["retries"]) == 2
    assert ast.unparse(tasks["train"]["execution_timeout"]) == "timedelta(seconds=60)"
    assert ast.unparse(tasks["train"]["retry_delay"]) == "timedelta(seconds=5)"
    assert "[train, train_1, report] >> sub" in text
    assert ".as_teardown(on_failure_fail_dagrun=True)" in text
    assert notes == ("images are left out, steps run as processes: python:3.11",)


def test_airflow_leaves_parameters_open_and_decides_conditions_when_a_task_runs() -> None:
    text = airflow.export(flow())[0]
    params = ast.literal_eval(calls(text, "DAG")["flow"]["params"])
    assert params == {
        "prepare.word": "hello", "train.lr": 0.1, "report.n": 3, "report.kind": "big", "sub.title": "models",
        "shared_folder": "/mnt/data", "user": "paddleflow",
    }  # fmt: skip
    command = ast.literal_eval(calls(text, "BashOperator")["report"]["bash_command"])
    n, kind = 'given(params["report.n"])', 'given(params["report.kind"])'
    condition = f'((({n} > 10.0) and ({kind} == "big")) and (("" ~ params["report.kind"] ~ "") != "small"))'
    assert command.startswith(
        "{% if not (" + condition + ") %}echo 'left out: its condition is false'; exit 0\n{% endif %}"
    )


def test_airflow_decides_the_condition_of_a_dag_in_every_task_of_it() -> None:
    text = """\
name: judged
fs_options: {main_fs: {name: data, mount_path: /mnt, sub_path: team}}
entry_points:
  judge: {command: echo, artifacts: {output: [verdict]}}
  outer:
    deps: judge
    artifacts: {input: {said: "{{judge.verdict}}"}}
    condition: "{{said}} == good"
    entry_points:
      inner: {command: echo, condition: "{{n}} in (1, 2)", parameters: {n: 1}}
"""
    tasks = calls(airflow.export(flow(text))[0], "BashOperator")
    command = ast.literal_eval(tasks["inner"]["bash_command"])
    path = ast.literal_eval(tasks["judge"]["env"])["PF_OUTPUT_ARTIFACT_VERDICT"]
    below = path.removeprefix('{{ params["shared_folder"] }}/team/.pipeline/{{ run_id }}')
    outer = f'(content((params["shared_folder"] ~ "/team" ~ "/.pipeline/" ~ run_id ~ "{below}")) == "good")'
    assert command.startswith("{% if not (" + outer + ' and (given(params["outer.inner.n"]) in (1.0, 2.0,))) %}')


@pytest.mark.parametrize("value", ["3", "3.0", 3, 12, 2.5, "big", "true", "false", "10", " 3 ", "", "1e1", "-4"])
@pytest.mark.parametrize(
    "condition",
    [
        "{{x}} == 3", "{{x}} != 3", "{{x}} > 2.5", "{{x}} <= 10", "{{x}} == '3'", "'{{x}}' == 3", "{{x}} == big", "{{x}} > b",
        "{{x}} == true", "!{{x}}", "{{x}} && true", "{{x}} in (3, big, true)", "{{x}} in (big)", "{{x}} == {{x}}",
        "{{x}} > 1 ? {{x}} < 5 : {{x}} == -4", "{{x}} == 3 || {{x}} == 'big'", "3 == {{x}}", "-{{x}} == 4",
    ],
)  # fmt: skip
def test_a_condition_means_the_same_to_airflow(condition: str, value: object) -> None:
    text = step(parameters={"x": value}, condition=condition)
    file = airflow.export(flow(text))[0]
    command = ast.literal_eval(calls(file, "BashOperator")["main"]["bash_command"])
    expression = command.removeprefix("{% if not (").partition(") %}")[0].replace('params["main.x"]', "x")
    expression = expression.replace('("" ~ x ~ "")', "str(x)")  # all else is spelled as in Python
    names: dict[str, Any] = {"x": value, "true": True, "false": False}
    exec("import operator, re\n" + jinja.HELPERS, names)
    try:
        expected: object = evaluate(condition, lambda ref: value)
    except Invalid:
        expected = Invalid
    try:
        found: object = eval(expression, names)
    except (TypeError, ValueError):
        found = Invalid
    assert found == expected


def test_airflow_s_own_templates_are_not_confused_with_the_step_s_text() -> None:
    text = ast.literal_eval(calls(airflow.export(flow())[0], "BashOperator")["prepare"]["bash_command"])
    assert '${{ "{#" }}HOME}' in text
    assert '{{ params["prepare.word"] }}' in text
    odd = step(command='docker ps --format "{{.State}}" {% raw %}')
    text = ast.literal_eval(calls(airflow.export(flow(odd))[0], "BashOperator")["main"]["bash_command"])
    assert text == 'docker ps --format "{{ "{{" }}.State{{ "}}" }}" {{ "{%" }} raw {{ "%}" }}\n'


def test_airflow_refuses_what_it_cannot_express() -> None:
    text = """\
name: bad
docker_env: x
entry_points:
  a: {command: echo, retry: {times: 2, exit_codes: [3]}}
  b: {command: echo, retry: {times: 2, factor: 3}}
  c: {command: echo, condition: "{{n}} + 1 > 2", parameters: {n: 3}}
  d: {command: echo, env: {PF_JOB_TYPE: distributed, PF_JOB_FRAMEWORK: ray}}
"""
    with pytest.raises(Invalid) as refused:
        airflow.export(flow(text))
    assert [fault.where for fault in refused.value.details] == ["c", "d", "a", "b"]


def test_words_of_this_platform_are_left_out_with_a_note() -> None:
    text = step(env={"PF_JOB_QUEUE_NAME": "q", "A": "1"}, cache={"enable": True})
    for export in (argo.export, airflow.export):
        found, notes = export(flow(text))
        assert "PF_JOB_QUEUE_NAME" not in str(found)
        assert "main: env PF_JOB_QUEUE_NAME is left out, it is a word of this platform" in notes
        assert "main: cache is left out, so the step always runs" in notes


def test_a_flood_of_tasks_is_refused() -> None:
    with pytest.raises(Invalid, match="loops come to 2500 tasks, at most 2000 are exported"):
        argo.export(flow(step(loop_argument=list(range(2500)))))


_NO_JOB = "train: job: a job of this platform (framework paddle) has no counterpart there"
_NO_LOOP = "square: loop_argument depends on artifact numbers, which is known only at run time"
#: why an example has no counterpart elsewhere
REFUSED = {
    (argo, "distributed-training"): _NO_JOB,
    (argo, "loop"): _NO_LOOP,
    (airflow, "distributed-training"): _NO_JOB,
    (airflow, "loop"): _NO_LOOP,
}


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*/run.yaml")), ids=lambda file: file.parent.name)
@pytest.mark.parametrize("target", [argo, airflow], ids=["argo", "airflow"])
def test_examples_are_exported_or_refused_by_name(target: Any, file: Path) -> None:
    found = flow(file.read_text())
    reason = REFUSED.get((target, file.parent.name))
    if reason is None:
        assert target.export(found)[0]
        return
    with pytest.raises(Invalid) as refused:
        target.export(found)
    assert reason in refused.value.message


def test_nested_loops_become_what_they_mean() -> None:
    text = """\
name: nested
docker_env: x
entry_points:
  outer:
    loop_argument: [[1, 2], [3]]
    entry_points:
      inner:
        parameters: {items: "{{PF_PARENT.PF_LOOP_ARGUMENT}}"}
        loop_argument: "{{items}}"
        command: echo {{PF_LOOP_ARGUMENT}}
"""
    found = manifest(text)
    names = [item["name"] for item in found["spec"]["templates"] if "container" in item]
    assert names == ["outer-inner", "outer-inner-1", "outer-1-inner"]
    assert [command(found, name) for name in names] == ["echo 1", "echo 2", "echo 3"]
