"""Steps run in the code that their document names, and jobs with the packages that they ask for."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from tests.e2e.conftest import ServerProcess
from tests.patience import PATIENCE

DOCUMENT = """\
name: coded
entry_points:
  one:
    command: python3 -c 'import mine; print(mine.NAME)'
    code: src  # below the document
    cache: {enable: true}
  two:
    command: cat mine.py
    code: {folder: ., workdir: src}
"""


def test_folders_of_steps_are_sent_with_the_document(server: ServerProcess, tmp_path: Path) -> None:
    tmp_path /= "project"
    (tmp_path / "src").mkdir(parents=True)
    (tmp_path / "src" / "mine.py").write_text("NAME = 'first'\n")
    (tmp_path / "run.yaml").write_text(DOCUMENT)

    def printed() -> set[str]:
        server.cli("run", "create", str(tmp_path / "run.yaml"), "--watch")
        return set(server.cli("run", "logs", "@latest").stdout.splitlines())

    assert printed() == {"[one] first", "[two] NAME = 'first'"}
    (tmp_path / "src" / "mine.py").write_text("NAME = 'second'\n")
    assert printed() == {"[one] second", "[two] NAME = 'second'"}, "changed code is no hit in the cache"
    missing = tmp_path / "missing.yaml"
    missing.write_text(DOCUMENT.replace("src  #", "nowhere  #"))
    refused = server.cli("run", "create", str(missing), check=False)
    assert (refused.returncode, "line 5: code[nowhere] is not a folder" in refused.stderr) == (1, True)


PROGRAM = """\
from paddleflow.pipeline import Pipeline, step

@step
def hello(number: int):
    import mine
    print(mine.NAME, number)

@Pipeline(name="dsl")
def dsl():
    hello(3)

run = dsl().submit()
run.wait()
print(*run.logs(), end="")
"""


def test_a_step_function_imports_the_module_beside_it(server: ServerProcess, tmp_path: Path) -> None:
    tmp_path /= "project"
    tmp_path.mkdir()
    (tmp_path / "mine.py").write_text("NAME = 'beside'\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    words = [sys.executable, "program.py"]
    done = subprocess.run(
        words, cwd=tmp_path, env=server.environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.stdout, done.returncode) == ("beside 3\n", 0), done.stderr


def wheel(folder: Path) -> Path:
    made = folder / "tiny_part-1.0-py3-none-any.whl"
    about = "tiny_part-1.0.dist-info"
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("tiny_part.py", "NAME = 'tiny'\n")
        archive.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: tiny-part\nVersion: 1.0\n")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        names = ("tiny_part.py", f"{about}/METADATA", f"{about}/WHEEL", f"{about}/RECORD")
        archive.writestr(f"{about}/RECORD", "".join(f"{name},,\n" for name in names))
    return made


def test_packages_are_installed_once(server: ServerProcess, tmp_path: Path) -> None:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text(f"tiny-part @ file://{wheel(tmp_path)}\n")
    words = ("job", "run", "--quiet", "--no-code", "--requirements", str(requirements), "--")
    command = ("python", "-c", "import tiny_part; print(tiny_part.NAME)")
    first, second = server.cli(*words, *command).stdout, server.cli(*words, *command).stdout
    assert "paddleflow: installing 1 requirements" in first
    assert (first.splitlines()[-1], second) == ("tiny", "tiny\n")
    requirements.write_text(f"other-part @ file://{tmp_path}/none.whl\n")
    failed = server.cli(*words, *command, check=False)
    assert failed.returncode == 1
    assert "the packages of this job cannot be installed: uv ended with" in failed.stdout
    assert len(list(server.data.glob("environments/*/*/ready"))) == 1
