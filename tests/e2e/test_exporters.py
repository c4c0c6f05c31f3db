"""Exported pipelines, judged by the real thing: Airflow runs the DAG, Argo's own schema holds for the manifest."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from paddleflow.exporters import airflow, argo
from paddleflow.spec.pipeline.document import read
from paddleflow.spec.pipeline.run_request import bind
from tests.framework_environments import programs_of

ARGO = "github.com/argoproj/argo-workflows/v3@v3.7.3"
#: each task costs Airflow seconds, so there are few; together they have everything
FLOW = """\
name: exported
docker_env: python:3.11
fs_options: {main_fs: {name: data, sub_path: team}}
entry_points:
  make:
    command: 'echo "{{word}} {{PF_LOOP_ARGUMENT}} ${#word} $PF_STEP_NAME" > {{out}}'
    env: {word: four}
    parameters: {word: hello, items: [a, b]}
    loop_argument: "{{items}}"
    artifacts: {output: [out]}
  never: {deps: make, condition: "{{n}} > 10", parameters: {n: 3}, command: exit 1}
  judge:
    artifacts: {output: [verdict, score]}
    command: 'echo "good - so far" > {{verdict}}; echo 0.93 > {{score}}'
  agree:
    deps: judge
    artifacts: {input: {verdict: "{{judge.verdict}}", score: "{{judge.score}}"}}
    condition: "{{score}} > 0.9 && {{verdict}} in (bad, 'good - so far') && !({{verdict}} == bad)"
    command: cp {{verdict}} agreed
  object:
    deps: judge
    artifacts: {input: {score: "{{judge.score}}"}}
    condition: "{{score}} < 0.9"
    entry_points: {speak: {command: exit 1}}
  group:
    deps: make,never,object
    artifacts: {input: {all: "{{make.out}}"}}
    entry_points:
      join:
        artifacts: {input: {all: "{{PF_PARENT.all}}"}}
        command: 'cat $(echo {{all}} | tr , " ") > result; test -n "{{PF_RUN_ID}}"'
        retry: {times: 1}
        timeout: 60
post_process:
  after: {command: echo after > after}
"""


@pytest.mark.frameworks
@pytest.mark.timeout(300)
def test_airflow_runs_an_exported_pipeline(tmp_path: Path) -> None:
    programs = programs_of("airflow")
    text, _ = airflow.export(bind(read(FLOW)))
    dags, shared = tmp_path / "dags", tmp_path / "shared"
    dags.mkdir()
    (shared / "team").mkdir(parents=True)
    (dags / "exported.py").write_text(text)
    environment = airflow_environment(programs, tmp_path, dags)
    conf = json.dumps({"shared_folder": str(shared), "make.word": "changed", "never.n": "4"})
    done = subprocess.run(
        [programs / "airflow", "dags", "test", "exported", "--conf", conf],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    result = shared / "team" / "result"
    assert result.exists(), f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert result.read_text() == "changed a 4 make\nchanged b 4 make\n"
    assert (shared / "team" / "after").read_text() == "after\n"
    assert (shared / "team" / "agreed").read_text() == "good - so far\n"


def airflow_environment(programs: Path, folder: Path, dags: Path) -> dict[str, str]:
    """Airflow in a folder of its own; its tables are made once and copied."""
    home = folder / "airflow"
    home.mkdir()
    environment = {key: value for key, value in os.environ.items() if not key.startswith("AIRFLOW")} | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
        "PYTHONWARNINGS": "ignore",
    }
    tables = programs.parent / "tables.db"
    if not tables.exists():
        made = subprocess.run([programs / "airflow", "db", "migrate"], env=environment, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr[-3000:]
        copy = tables.with_suffix(f".{os.getpid()}")
        shutil.copy(home / "airflow.db", copy)
        copy.rename(tables)
    shutil.copy(tables, home / "airflow.db")
    return environment


def test_argo_s_schema_holds_for_an_exported_pipeline() -> None:
    validator = argo_schema()
    manifest, _ = argo.export(bind(read(FLOW)))
    assert [str(error) for error in validator.iter_errors(manifest)] == []
    broken = json.loads(json.dumps(manifest))
    broken["spec"]["templates"][0]["dag"]["tasks"][0]["name"] = 5
    assert list(validator.iter_errors(broken)), "the schema does see what is wrong"


def argo_schema() -> Any:
    """Argo's own schema, out of its Go module; skips where that cannot be had."""
    go = shutil.which("go") or "/usr/local/go/bin/go"
    if not Path(go).exists():
        pytest.skip("no Go here, so Argo's module with its schema cannot be had")
    done = subprocess.run([go, "mod", "download", "-json", ARGO], capture_output=True, text=True, cwd="/", timeout=100)
    if done.returncode != 0:
        pytest.skip(f"Argo's module with its schema cannot be had: {done.stderr.strip().splitlines()[-1]}")
    schema = json.loads((Path(json.loads(done.stdout)["Dir"]) / "api" / "jsonschema" / "schema.json").read_text())
    del schema["oneOf"]
    schema["$ref"] = "#/definitions/io.argoproj.workflow.v1alpha1.Workflow"
    return jsonschema_rs.Draft7Validator(schema)
