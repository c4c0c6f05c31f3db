"""`job run -- python train.py` runs the caller's own train.py: in its folder where files are shared, else in a snapshot."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import PADDLEFLOW, ServerProcess
from tests.ordinary_account import UID, needs_root

TRAIN = "import os, sys, helper\nprint(helper.WORD, os.getcwd(), os.environ.get('VIRTUAL_ENV'), sys.argv[1:])\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    (folder / "helper.py").write_text("WORD = 'mine'\n")
    (folder / "a.log").write_text("not code")
    (folder / ".gitignore").write_text("*.log\n")
    return folder


@pytest.fixture(scope="module")
def stranger() -> Iterator[ServerProcess]:
    """A server under another account: it shares no files with us. Its snapshots are not in its data folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chown(folder, UID, UID)
        account = [sys.executable, "-m", "tests.ordinary_account", name]
        path = f"{Path(PADDLEFLOW).parent}:{os.environ['PATH']}"
        environment = {"PATH": path, "PYTHONPATH": str(Path(__file__).parents[2])}
        environment["PADDLEFLOW_SERVER_FILES"] = str(folder / "shared")
        server = ServerProcess(folder / "server", environment, account).start()
        yield server
        server.end()


def test_on_the_same_machine_and_account(server: ServerProcess, project: Path) -> None:
    words = ("job", "run", "--quiet", "--", sys.executable, "train.py", "--epochs", "3")
    done = server.cli(*words, cwd=project, environment={"VIRTUAL_ENV": "/venv"})
    assert done.stdout == f"mine {project} /venv ['--epochs', '3']\n"
    shown = server.cli("job", "show", "@latest").stdout
    assert f"folder {project}" in shown


@needs_root
def test_a_server_that_shares_no_files_gets_a_snapshot(stranger: ServerProcess, project: Path, tmp_path: Path) -> None:
    words = ("job", "run", "--quiet", "--", "python3", "train.py")
    first = stranger.cli(*words, cwd=project).stdout
    assert first.startswith("mine ")
    assert str(project) not in first
    assert (stranger.data.parent / "shared" / "code").is_dir()
    assert not (stranger.data / "code").exists()
    (project / "helper.py").write_text("WORD = 'changed'\n")
    assert stranger.cli(*words, cwd=project).stdout.startswith("changed ")
    stranger.cli("job", "code", "@latest", "--to", str(tmp_path / "ran"))
    assert (tmp_path / "ran" / "helper.py").read_text() == "WORD = 'changed'\n"
    assert not (tmp_path / "ran" / "a.log").exists()


@needs_root
def test_a_file_that_was_made_in_a_snapshot(stranger: ServerProcess, project: Path) -> None:
    (project / "sub").mkdir()
    (project / "sub" / "kept").write_text("")
    stranger.cli("job", "run", "--quiet", "--workdir", "sub", "--", "sh", "-c", "echo made > result", cwd=project)
    assert stranger.cli("job", "get", "@latest", "result", "--to", "-").stdout == "made\n"


@needs_root
def test_workers_share_the_code(stranger: ServerProcess, project: Path) -> None:
    (project / "train.py").write_text("import os, helper\nprint(helper.WORD, os.environ['RANK'], flush=True)\n")
    words = ("job", "run", "--quiet", "--framework", "pytorch", "--workers", "2", "--cpu", "100m", "--mem", "128Mi")
    done = stranger.cli(*words, "--", "python3", "train.py", cwd=project)
    assert sorted(line.partition("] ")[2] for line in done.stdout.splitlines()) == ["mine 0", "mine 1"]


def test_a_document_names_its_folder(server: ServerProcess, project: Path) -> None:
    (project / "job.yaml").write_text(f"name: train\ncommand: {sys.executable} train.py\ncode: .\n")
    job = server.cli("job", "submit", str(project / "job.yaml")).stdout.strip()
    assert server.cli("job", "wait", job).returncode == 0
    assert server.cli("job", "logs", job).stdout.startswith(f"mine {project} ")
