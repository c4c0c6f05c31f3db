"""Tests of one group run on one worker: the fixtures that are brought up once per run rely on it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

SUITE = """
import os

import pytest


@pytest.mark.xdist_group("together")
@pytest.mark.parametrize("number", range(12))
def test_together(number):
    print("together on", os.environ["PYTEST_XDIST_WORKER"], flush=True)
"""


def test_a_group_stays_on_one_worker(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    plugins = ("-p", "tests.worker_groups", "-p", "no:cacheprovider", "-p", "no:inline_snapshot")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *plugins,
            "-n",
            "2",
            "--dist",
            "loadgroup",
            "-rA",
            "--rootdir",
            tmp_path,
            tmp_path,
        ],
        cwd=Path(__file__).resolve().parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    workers = re.findall(r"^together on (\w+)$", done.stdout, re.MULTILINE)
    assert len(workers) == 12, done.stdout + done.stderr
    assert len(set(workers)) == 1
