"""`paddleflow pipeline check` and `schema`: without a server, every fault with its line, a caret and a hint."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from inline_snapshot import snapshot

from paddleflow.cli.main import root
from paddleflow.spec.pipeline.schema import json_schema
from tests import pipeline_documents as documents

WRONG = """\
name: train
entry_points:
  prepare: {command: echo {{n}}}
  train:
    comand: python train.py
    deps: prepar
"""
FAULTY = """\
name: train
entry_points:
  prepare: {command: "echo {{nn}}", parameters: {n: 1}}
  train:
    comand: python train.py
    deps: prepar  # 部署
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PADDLEFLOW_SERVER", "http://127.0.0.1:1")  # nobody is there, and nobody is asked
    return tmp_path


def call(*words: str, given: str | bytes | None = None) -> Result:
    return CliRunner().invoke(root, ["pipeline", *words], prog_name="paddleflow", input=given)


@pytest.mark.parametrize("name", documents.ALL)
def test_a_good_document(folder: Path, name: str) -> None:
    (folder / "run.yaml").write_text(documents.ALL[name])
    result = call("check", "run.yaml")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert result.stdout.startswith("run.yaml: ok: pipeline ")


def test_what_a_good_document_is(folder: Path) -> None:
    (folder / "run.yaml").write_text(documents.ARTIFACTS)
    assert call("check", "run.yaml").stdout == snapshot(
        "run.yaml: ok: pipeline artifact_example, 3 steps, post_process mail\n"
    )
    assert json.loads(call("check", "run.yaml", "--json").stdout) == snapshot(
        {
            "file": "run.yaml",
            "ok": True,
            "pipeline": "artifact_example",
            "steps": 3,
            "dags": 0,
            "post_process": "mail",
        }
    )


def test_faults_with_their_lines(folder: Path) -> None:
    (folder / "run.yaml").write_text(FAULTY)
    result = call("check", "run.yaml")
    assert result.exit_code == 1
    assert result.stderr == "3 errors\n"
    assert result.stdout == snapshot("""\
run.yaml:3:28: entry_points.prepare.command: unsupported RefParamName[nn] for field[command] of component[prepare]
  3 |   prepare: {command: "echo {{nn}}", parameters: {n: 1}}
    |                            ^
  hint: did you mean n?
run.yaml:5:5: entry_points.train: step has no attribute [comand]
  5 |     comand: python train.py
    |     ^
  hint: did you mean command?
run.yaml:6:11: entry_points.train.deps: component [train] has a wrong dep [prepar]
  6 |     deps: prepar  # 部署
    |           ^
  hint: did you mean prepare?
""")


def test_faults_for_programs(folder: Path) -> None:
    (folder / "run.yaml").write_text(FAULTY)
    result = call("check", "run.yaml", "--json")
    assert result.exit_code == 1
    answer = json.loads(result.stdout)
    assert (answer["ok"], answer["code"], len(answer["faults"])) == (False, "InvalidPipeline", 3)
    assert answer["faults"][2] == {
        "line": 6,
        "column": 11,
        "path": "entry_points.train.deps",
        "message": "component [train] has a wrong dep [prepar]",
        "hint": "did you mean prepare?",
    }


def test_yaml_that_is_none(folder: Path) -> None:
    (folder / "run.yaml").write_text(WRONG)
    result = call("check", "run.yaml")
    assert result.exit_code == 1
    assert result.stdout == snapshot("""\
run.yaml:3:27: this is not YAML: did not find expected ',' or '}'
  3 |   prepare: {command: echo {{n}}}
    |                           ^
  hint: put quotes around a value that begins with {{: "{{name}}"
""")


def test_what_a_run_would_give(folder: Path) -> None:
    (folder / "run.yaml").write_text(
        "name: p\nentry_points: {a: {command: x, parameters: {n: {type: int, default: 1}}}}"
    )
    assert call("check", "run.yaml", "-p", "n=5", "-p", "a.n=6").exit_code == 0
    result = call("check", "run.yaml", "-p", "n=many", "-p", "m=1")
    assert result.exit_code == 1
    assert result.stdout == snapshot("""\
run.yaml: parameters.n: invalid type for param[n]: expect type[int], found text [many]
run.yaml: parameters.m: param[m] not exist
  hint: known: n
""")


def test_the_storage_that_a_run_would_name(folder: Path) -> None:
    (folder / "run.yaml").write_text("name: p\nentry_points: {a: {command: x, artifacts: {output: [o]}}}")
    assert "cannot define artifact in component[a] with no Fs mounted" in call("check", "run.yaml").stdout
    assert call("check", "run.yaml", "-f", "ppl").exit_code == 0


def test_from_the_input() -> None:
    assert call("check", "-", given=documents.BASE).stdout.startswith("<stdin>: ok: pipeline base_pipeline")
    assert call("check", "-", given=b"\xff").stdout.startswith("<stdin>: the document is not UTF-8")


def test_files_that_cannot_be_read(folder: Path) -> None:
    result = call("check", "nowhere.yaml")
    assert (result.exit_code, result.stderr) == (1, "error: nowhere.yaml cannot be read: No such file or directory\n")
    (folder / "large.yaml").write_bytes(b"x" * 10_000_000)
    result = call("check", "large.yaml")
    assert result.stderr == "error: large.yaml has 10,000,000 bytes, the maximum is 4,194,304\n"


def test_a_long_line_is_cut_around_its_fault(folder: Path) -> None:
    (folder / "run.yaml").write_text(
        f"name: p\nentry_points: {{a: {{env: {{A: {'x' * 500}}}, comand: x, command: y}}}}"
    )
    lines = call("check", "run.yaml").stdout.splitlines()
    assert len(lines[1]) < 180
    assert lines[1][lines[2].index("^") :].startswith("comand")


def test_the_schema() -> None:
    result = call("schema")
    assert json.loads(result.stdout) == json_schema()


def test_nothing_of_the_server_is_imported(folder: Path) -> None:
    (folder / "run.yaml").write_text(documents.BASE)
    code = (
        "import sys\nfrom paddleflow.cli.main import root\n"
        "try: root.main(['pipeline', 'check', 'run.yaml'])\n"
        "except SystemExit: print(*(name for name in ('pydantic', 'http', 'rich', 'asyncio') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[1:] == [""]
