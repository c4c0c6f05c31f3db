"""Outputs that hostile steps make, on a real server: pipes, sparse terabytes, links that lead out. Others do not notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import ServerProcess
from tests.e2e.run_client import call, create, ended
from tests.patience import eventually

GOOD = """
name: good
docker_env: x
fs_options: {main_fs: {name: store}}
entry_points:
  a: {command: 'echo fine > {{out}}', artifacts: {output: [out]}, cache: {enable: true}}
  b: {deps: a, command: 'cat {{in}}', artifacts: {input: {in: '{{a.out}}'}}}
"""
HOSTILE = """
name: hostile
docker_env: x
failure_options: {strategy: continue}
fs_options: {main_fs: {name: store}}
entry_points:
""" + "".join(f"  pipe{n}: {{command: 'mkfifo {{{{out}}}}', artifacts: {{output: [out]}}}}\n" for n in range(6))
SPARSE = """
name: sparse
docker_env: x
fs_options: {main_fs: {name: store}}
entry_points:
""" + "".join(
    f"  huge{n}: {{command: 'truncate -s 8T {{{{out}}}}', artifacts: {{output: [out]}}}}\n" for n in range(10)
)
LINK = """
name: link
docker_env: x
fs_options: {main_fs: {name: store}}
entry_points:
  out: {command: 'ln -s /etc/shadow {{out}}', artifacts: {output: [out]}}
"""


@pytest.fixture
def store(server: ServerProcess, tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir()
    call(server, "POST", "/fs", {"name": "store", "url": f"local://{folder}"})
    return folder


def test_hostile_outputs_hold_nobody_up(server: ServerProcess, store: Path) -> None:
    sparse = create(server, SPARSE)
    pipes = ended(server, create(server, HOSTILE))
    assert pipes["status"] == "failed"
    for views in pipes["runtime"].values():
        assert "neither a file nor a folder" in views[0]["jobMessage"]
    link = ended(server, create(server, LINK))
    assert "leads out of the store" in link["runtime"]["out"][0]["jobMessage"]

    def reading() -> bool:
        return len([path for path in (store / ".pipeline" / sparse).rglob("out") if path.stat().st_size]) == 10

    eventually(reading, "all ten are made")
    good = ended(server, create(server, GOOD))
    assert good["status"] == "succeeded", "while ten outputs of eight terabytes are being read"
    server.kill()
    server.start()
    again = ended(server, create(server, GOOD))
    assert again["runtime"]["a"][0]["reusedFrom"] == good["runID"], "after a restart, too"
    call(server, "PUT", f"/run/{sparse}?action=stop")
    stopped = ended(server, sparse)
    assert stopped["status"] == "terminated"
