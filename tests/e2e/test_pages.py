"""The commands of the README, the tutorial and the task pages work as written, for an account that is not root.

The shell, Python and YAML blocks of a page run in order in one shell, in a copy of the repository that belongs to the account.
`scripts/start` and `paddleflow server` run in the background, as in a terminal of their own. A comment before a block tells what a
reader sees, too: ``<!-- not run: why -->`` or ``<!-- refused -->`` (the block must end with an error). A test replaces only the port,
folders outside of the account's home, and waits that a reader would find short.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.ordinary_account import UID, needs_root

pytestmark = needs_root
ROOT = Path(__file__).parents[2]
TIMEOUT = 300.0
BLOCK = re.compile(r"(?:<!-- (?P<mark>[^>]*) -->\n)?```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
TRAIN = "import sys\nprint('trained with', sys.argv[1:])\n"
SERVER = "paddleflow server\n"
PIPELINE = "name: old\nentry_points:\n  only:\n    command: echo from a 1.4 project\n"
BEGIN = r"""
set -eEuo pipefail
trap 'echo "line $LINENO failed: $BASH_COMMAND" >&2' ERR
terminals=()
background() {
    local answer=$1
    shift
    "$@" > "$HOME/terminal-${#terminals[@]}.log" 2>&1 < /dev/null &
    terminals+=($!)
    for _ in $(seq 600); do
        if grep -q "$answer" "$HOME/terminal-$((${#terminals[@]} - 1)).log"; then return 0; fi
        kill -0 "${terminals[-1]}" || break
        sleep 0.1
    done
    cat "$HOME"/terminal-*.log >&2
    return 1
}
scripts/start() { background 'Ctrl-C stops the server' "$PWD/scripts/start" "$@"; }
scripts/test() { echo "the suite is what runs this"; }
paddleflow() {
    if [ "$1" = server ]; then background 'serving\|listening\|ready' "$HOME/repository/.venv/bin/paddleflow" "$@";
    else command paddleflow "$@"; fi
}
finish() {
    local code=$?
    trap - ERR
    set +e
    paddleflow --context local job list -s init,pending,running --all -o name | xargs -r paddleflow --context local job stop
    paddleflow --context local job list -s init,pending,running,terminating --all -o name |
        xargs -r paddleflow --context local job wait --timeout 60
    for pid in "${terminals[@]}"; do kill -TERM "$pid"; wait "$pid"; done
    exit "$code"
} > /dev/null 2>&1
trap finish EXIT
"""


class Account:
    """An ordinary account with a copy of the repository and a project below its home."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.repository = home / "repository"
        self.repository.mkdir()
        for name in ("examples", "scripts"):
            shutil.copytree(ROOT / name, self.repository / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "requirements", self.repository / "requirements")
        shutil.copy(ROOT / "pyproject.toml", self.repository)
        (self.repository / ".venv").symlink_to(sys.prefix)
        (self.repository / "my-project").mkdir()
        for folder in (self.repository, self.repository / "my-project"):
            (folder / "train.py").write_text(TRAIN)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = str(probe.getsockname()[1])
        start = self.repository / "scripts" / "start"
        start.write_text(start.read_text().replace("8999", self.port))

    def run(self, script: str) -> str:
        """What the script printed; it must succeed."""
        (self.home / "script").write_text(BEGIN + script)
        for folder, _, files in os.walk(self.home):
            for path in (Path(folder), *(Path(folder, name) for name in files)):
                os.chown(path, UID, UID, follow_symlinks=False)
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PADDLEFLOW_")}
        done = subprocess.run(
            [sys.executable, "-m", "tests.ordinary_account", str(self.home), "bash", str(self.home / "script")],
            env={
                **kept,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT),
                "PADDLEFLOW_LOCAL_CPUS": "4",
                "PADDLEFLOW_LOCAL_GRACE": "1",
                "PADDLEFLOW_SERVER_PORT": self.port,
            },
            cwd=self.repository,
            input="alicepass1\n",  # the one prompt of the pages
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
            start_new_session=True,  # without a terminal, as passwords would be asked for there
        )
        assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout + done.stderr

    def page(self, name: str, replaced: Mapping[str, str] | None = None, before: str = "") -> str:
        """Runs the blocks of a page."""
        changes = {
            "8999": self.port,
            "/tmp/work": f"{self.home}/work",
            "/data/project": f"{self.home}/data",
            **(replaced or {}),
        }
        return self.run(before + "".join(_commands((ROOT / name).read_text("utf-8"), changes)))


def _commands(page: str, changes: Mapping[str, str]) -> Iterator[str]:
    for old, new in changes.items():
        page = page.replace(old, new)
    for number, block in enumerate(BLOCK.finditer(page)):
        mark, kind, text = block["mark"] or "", block["kind"], block["text"]
        if mark.startswith("not run"):
            continue
        if kind == "yaml" and (name := re.match(r"# (\S+\.yaml)\n", text)):
            yield f"cat > {name[1]} << 'END-OF-BLOCK'\n{text}END-OF-BLOCK\n"
        elif kind == "python":
            yield f"cat > block_{number}.py << 'END-OF-BLOCK'\n{text}END-OF-BLOCK\npython block_{number}.py\n"
        elif kind == "sh" and mark == "refused":
            yield f"if (\n{text}\n); then echo 'this was not refused' >&2; exit 1; fi\n"
        elif kind == "sh":
            yield text


@pytest.fixture
def account() -> Iterator[Account]:
    if not Path(sys.prefix, "stamp").exists():
        pytest.skip("the environment was not made by the scripts of this repository")
    with tempfile.TemporaryDirectory() as name:
        yield Account(Path(name))


def test_readme(account: Account) -> None:
    said = account.page("README.md", {'"password": "…"': '"password": "\'$(cat data/root-password)\'"'})
    assert "trained with []" in said
    assert "hello from a job" in said


def test_tutorial(account: Account) -> None:
    fill = "job=$(paddleflow job run -d -- sleep 60)"
    again = "\n".join([f"for _ in 1 2 3 4; do {fill}; done", fill])
    said = account.page("docs/tutorial/index.md", {fill: again, "seq 60": "seq 10"})
    assert "hello from alice" in said
    assert "suggestions:" in said
    assert "\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n" in said  # the log of the job that outlived the server


def test_train_my_script(account: Account) -> None:
    said = account.page("docs/tasks/train-my-script.md")
    assert "trained with ['--epochs', '3']" in said


def test_sweep(account: Account) -> None:
    said = account.page("docs/tasks/sweep.md", before=SERVER)
    assert "trained with ['--lr', '0.1']" in said


def test_pipeline_with_artifacts(account: Account) -> None:
    assert "the model is 15150" in account.page("docs/tasks/pipeline-with-artifacts.md", before=SERVER)


def test_why_does_my_job_wait(account: Account) -> None:
    fill = "paddleflow job run -d --array 1-5 -- sleep 600\n"
    assert "suggestions:" in account.page("docs/tasks/why-does-my-job-wait.md", before=SERVER + fill)


def test_move_from_paddleflow(account: Account) -> None:
    (account.repository / "run.yaml").write_text(PIPELINE)
    settings = account.home / ".paddleflow"
    settings.mkdir()
    lines = ["[user]", "name = root", "password = paddleflow", "[server]", "paddleflow_server_host = 127.0.0.1"]
    (settings / "paddleflow.ini").write_text("\n".join([*lines, f"paddleflow_server_port = {account.port}", ""]))
    assert "root" in account.page("docs/tasks/move-from-paddleflow.md")
