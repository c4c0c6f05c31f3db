"""The wheel and the sdist: built, installed into an empty environment, and a job run with what was installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.patience import eventually

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.xdist_group("distribution")


def run(*command: str | Path, **env: str) -> str:
    done = subprocess.run(
        [str(word) for word in command], env=os.environ | env, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Wheel (made from the sdist, as an index would make it) and sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return next(folder.glob("*.whl")), next(folder.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment that has the wheel and nothing of this repository."""
    environment = tmp_path_factory.mktemp("clean") / "env"
    uv = Path(sys.executable).with_name("uv")
    run(uv, "venv", "--quiet", "--python", sys.executable, environment)
    known = tmp_path_factory.mktemp("lock") / "versions.txt"
    lock = (ROOT / "requirements" / "lock.txt").read_text("utf-8")
    known.write_text("\n".join(line.rstrip(" \\") for line in lock.splitlines() if line[:1].isalnum()))
    run(
        uv,
        "pip",
        "install",
        "--quiet",
        "--python",
        environment / "bin" / "python",
        "--constraint",
        known,
        f"{built[0]}[server]",
    )
    return environment / "bin"


def test_the_archives_hold_what_they_should(built: tuple[Path, Path]) -> None:
    names = set(zipfile.ZipFile(built[0]).namelist())
    packaged = {
        file.relative_to(ROOT / "src").as_posix()
        for file in (ROOT / "src").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert packaged <= names
    assert "paddleflow/py.typed" in names
    with tarfile.open(built[1]) as archive:
        tops = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert {"src", "README.md", "LICENSE", "pyproject.toml"} <= tops


def test_links_of_the_readme_work_on_a_package_index(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[0]) as archive:
        metadata = next(name for name in archive.namelist() if name.endswith("METADATA"))
        text = archive.read(metadata).decode()
    assert "](https://" in text
    assert "](docs/" not in text


def test_an_installed_wheel_runs_a_job(installed: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    home = tmp_path / "home"
    home.mkdir()
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen(
            [installed / "paddleflow", "server", "--port", "0", "--data", data],
            env={"PATH": os.environ["PATH"], "HOME": str(home)},
            stdout=subprocess.DEVNULL,
            stderr=log,
            cwd=tmp_path,
        )
    try:
        eventually(
            lambda: (data / "server.json").exists() or server.poll() is not None, "the server is up or has ended"
        )
        assert server.poll() is None, (tmp_path / "log").read_text()
        address = json.loads((data / "server.json").read_text())
        client = {
            "HOME": str(home),
            "PADDLEFLOW_SERVER": address["url"],
            "PADDLEFLOW_TOKEN": (data / "client-token").read_text(),
        }
        assert "hello from the wheel" in run(
            installed / "paddleflow", "job", "run", "--", "echo", "hello from the wheel", **client
        )
    finally:
        server.terminate()
        server.wait()
