"""`paddleflow pipeline export`: without a server, to a file or to the output, refusals with all that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.unit.cli.test_pipeline import call

FLOW = "name: flow\nentry_points:\n  main: {command: 'echo {{word}}', docker_env: x, parameters: {word: hi}, cache: {enable: true}}\n"


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    file = tmp_path / "run.yaml"
    file.write_text(FLOW)
    return file


def test_argo_to_the_output(flow: Path) -> None:
    result = call("export", str(flow), "--to", "argo", "-p", "word=bye")
    assert result.exit_code == 0
    manifest = yaml.safe_load(result.stdout)
    assert (manifest["kind"], manifest["spec"]["arguments"]["parameters"][0]["value"]) == ("Workflow", "bye")
    assert result.stderr == "note: main: cache is left out, so the step always runs\n"


def test_airflow_to_a_file(flow: Path, tmp_path: Path) -> None:
    result = call("export", str(flow), "--to", "airflow", "-o", str(tmp_path / "dag.py"))
    assert (result.exit_code, result.stdout) == (0, "")
    compile((tmp_path / "dag.py").read_text(), "dag.py", "exec")


def test_what_cannot_be_read_or_expressed_is_told_whole(flow: Path, tmp_path: Path) -> None:
    flow.write_text(FLOW.replace("command", "comand"))
    result = call("export", str(flow), "--to", "argo", "-o", str(tmp_path / "out"))
    assert (result.exit_code, (tmp_path / "out").exists()) == (1, False)
    assert "comand" in result.output
    flow.write_text("name: flow\nentry_points:\n  a: {command: x}\n  b: {command: x}\n")
    result = call("export", str(flow), "--to", "argo", "-o", str(tmp_path / "out"))
    assert (result.exit_code, (tmp_path / "out").exists()) == (1, False)
    assert "found 2 errors\n  - a: it has no image (give it a docker_env)\n  - b: it has no image" in result.stderr
    assert call("export", str(flow), "--to", "make").exit_code == 2
