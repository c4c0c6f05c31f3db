"""Secrets of real jobs: values from a pipe or a file, as variables and files, hidden in logs, nowhere else on the disk."""

from __future__ import annotations

import stat
from pathlib import Path

from tests.e2e.conftest import ServerProcess
from tests.patience import eventually

VALUE = "hf_0123456789abcdef"


def test_jobs_and_steps_are_given_secrets_that_nobody_reads(server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "value").write_text(VALUE)
    server.cli("secret", "set", "HF_TOKEN", "-f", str(tmp_path / "value"))
    (tmp_path / "value").unlink()
    assert server.cli("secret", "list", "-o", "name").stdout == "HF_TOKEN\n"
    line = f"echo token=$HF_TOKEN; cat $PF_SECRETS_DIR/token; stat -c %a $PF_SECRETS_DIR $PF_SECRETS_DIR/token; test $T = {'*' * 4}"
    words = ("job", "run", "--quiet", "--no-code", "--secret", "HF_TOKEN", "--secret", "HF_TOKEN=@token")
    done = server.cli(*words, "-e", "T=****", line)
    hidden = "*" * len(VALUE)
    assert done.stdout == f"token={hidden}\n{hidden}700\n400\n"
    eventually(lambda: not list(server.data.glob("jobs/*/*/secrets-*")), "the files of the secret are gone")
    (tmp_path / "run.yaml").write_text(
        "name: given\nentry_points:\n  one:\n    command: echo step=$TOKEN\n    secrets: [HF_TOKEN=TOKEN]\n"
    )
    server.cli("run", "create", str(tmp_path / "run.yaml"), "--watch")
    assert server.cli("run", "logs", "@latest").stdout == f"step={hidden}\n"
    holders = {file for file in server.data.rglob("*") if file.is_file() and VALUE.encode() in file.read_bytes()}
    assert {file.suffix for file in holders} == {".log"}, "only what the jobs wrote themselves"
    assert VALUE not in server.log.read_text()
    assert stat.S_IMODE((server.data / "keeper.journal").stat().st_mode) == 0o600


def test_a_job_whose_secret_does_not_exist_is_refused(server: ServerProcess) -> None:
    done = server.cli("job", "run", "--no-code", "--secret", "HF_TOKEN", "true", check=False)
    assert done.returncode == 1
    assert "secret[HF_TOKEN] does not exist" in done.stderr
    assert "hint: paddleflow secret set HF_TOKEN" in done.stderr
