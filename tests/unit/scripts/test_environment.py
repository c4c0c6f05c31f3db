"""What the scripts set up: an environment counts as made only when all of it is."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
#: stands for the interpreter of the environment: its pip, as the file `broken` beside it says, fails
PYTHON = '#!/bin/sh\ncase "$*" in *"pip install"*) [ ! -e "$(dirname "$0")/broken" ] ;; esac\n'


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    (tmp_path / "scripts/lib").mkdir(parents=True)
    shutil.copy(ROOT / "scripts/lib/environment.sh", tmp_path / "scripts/lib")
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements/lock.txt").write_text("one==1\n")
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    programs = tmp_path / ".venv/bin"
    programs.mkdir(parents=True)
    for name, text in (("python", PYTHON), ("uv", "#!/bin/sh\n")):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    return tmp_path


def set_up(clone: Path) -> subprocess.CompletedProcess[str]:
    script = 'set -euo pipefail; source "$1/scripts/lib/environment.sh"; environment; echo ready'
    return subprocess.run(["bash", "-c", script, "bash", clone], capture_output=True, text=True, check=False)


def test_a_set_up_that_failed_is_done_again(clone: Path) -> None:
    broken, stamp = clone / ".venv/bin/broken", clone / ".venv/stamp"
    broken.touch()
    done = set_up(clone)
    assert (done.returncode, done.stdout, stamp.exists()) == (1, "", False)
    assert "error: the packages of requirements/lock.txt could not be installed" in done.stderr
    broken.unlink()
    assert set_up(clone).stdout == "ready\n"
    assert stamp.exists()


def test_a_complete_environment_is_left_alone(clone: Path) -> None:
    assert set_up(clone).stdout == "ready\n"
    (clone / ".venv/bin/broken").touch()
    assert set_up(clone).stdout == "ready\n"
