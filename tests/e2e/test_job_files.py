"""`job get` fetches what a job wrote below the folder it started in, and nothing else."""

from __future__ import annotations

import tempfile
from pathlib import Path

import paddleflow
from tests.e2e.conftest import ServerProcess

WRITE = "mkdir out && echo 0.93 > out/score && ln -s /etc/passwd leak && ln -s out/score again && mkfifo pipe && touch empty"


def test_files_of_the_work_folder(server: ServerProcess, tmp_path: Path) -> None:
    server.cli("job", "run", "--no-code", WRITE)
    server.cli("job", "get", "@latest", "out/score", cwd=tmp_path)
    assert (tmp_path / "score").read_text() == "0.93\n"
    server.cli("job", "get", "@latest", "./again", "--to", "other", cwd=tmp_path)
    assert (tmp_path / "other").read_text() == "0.93\n"
    assert server.cli("job", "get", "@latest", "out/score", "--to", "-").stdout == "0.93\n"
    (tmp_path / "folder").mkdir()
    server.cli("job", "get", "@latest", "out/score", "--to", "folder", cwd=tmp_path)
    assert (tmp_path / "folder" / "score").read_text() == "0.93\n"
    assert server.cli("job", "get", "@latest", "empty", "--to", "-").stdout == ""
    for path, message in {
        "absent": "has no file absent",
        "leak": "leads out of the store through a link",
        "../single-0.log": "it holds ..",
        "pipe": "is neither a file nor a folder",
        "out": "it has score",
        ".": "is a folder, not a file",
    }.items():
        refused = server.cli("job", "get", "@latest", path, "--to", "none", check=False, cwd=tmp_path)
        assert refused.returncode == 1, path
        assert message in refused.stderr
    assert sorted(each.name for each in tmp_path.iterdir() if each.is_file() and not each.name.endswith(".log")) == [
        "other",
        "score",
    ]


def test_a_work_folder_that_was_swapped_for_a_link(server: ServerProcess) -> None:
    secret = server.data / "client-token"
    server.cli("job", "run", "--no-code", f'w=$PWD; cd /; mv "$w" "$w.old"; ln -s "{secret.parent}" "$w"')
    refused = server.cli("job", "get", "@latest", secret.name, "--to", "-", check=False)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "leads out of the store through a link" in refused.stderr


def test_only_its_owner_and_root_get_a_job_s_files(server: ServerProcess) -> None:
    with tempfile.TemporaryDirectory() as home:
        bob = {"PADDLEFLOW_HOME": home}
        server.cli("user", "add", "bobby", "bobbypass1")
        server.cli("login", server.url, "-u", "bobby", "--password-stdin", stdin="bobbypass1", environment=bob)
        server.cli("queue", "grant", "bobby", "default-queue")
        job = server.cli("job", "run", "-d", "--no-code", "echo mine > file").stdout.strip()
        server.cli("job", "wait", job)
        refused = server.cli("job", "get", job, "file", "--to", "-", check=False, environment=bob)
        assert (refused.returncode, refused.stdout) == (1, "")
        own = server.cli("job", "run", "-d", "--no-code", "echo his > file", environment=bob).stdout.strip()
        server.cli("job", "wait", own)
        for environment in (bob, {}):
            assert server.cli("job", "get", own, "file", "--to", "-", environment=environment).stdout == "his\n"


def test_files_of_a_job_that_ran_in_a_folder_of_the_caller(server: ServerProcess, tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "inner").mkdir(parents=True)
    server.cli("job", "run", "--workdir", "inner", "echo 1 > result; ln -s /etc/passwd leak", cwd=project)
    assert server.cli("job", "get", "@latest", "result", "--to", "-").stdout == "1\n"
    refused = server.cli("job", "get", "@latest", "absent", check=False)
    assert f"the job ran in the folder {project} of its machine" in refused.stderr
    refused = server.cli("job", "get", "@latest", "leak", "--to", "-", check=False)
    assert (refused.returncode, refused.stdout) == (1, "")


def test_a_folder_that_another_user_names_is_not_served(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("of root")
    server.cli("user", "add", "namer", "namerpass1")
    server.cli("queue", "grant", "namer", "default-queue")
    with tempfile.TemporaryDirectory() as home:
        namer = {"PADDLEFLOW_HOME": home}
        server.cli("login", server.url, "-u", "namer", "--password-stdin", stdin="namerpass1", environment=namer)
        with paddleflow.connect(server.url, username="namer", password="namerpass1") as client:
            job = client.jobs.submit({"command": "true", "code": {"path": str(tmp_path)}})
            job.wait()
        refused = server.cli("job", "get", job.id, "secret", "--to", "-", check=False, environment=namer)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "the job ran in the folder" in refused.stderr
