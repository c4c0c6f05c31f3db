"""What is run again after a failure: ids without the group that xdist adds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_ids_lose_their_group(tmp_path: Path) -> None:
    cache = tmp_path / "v" / "cache"
    cache.mkdir(parents=True)
    failed = ["tests/a.py::test_one", "tests/b.py::test_two@control-plane", "tests/c.py::test_three[x@y]"]
    (cache / "lastfailed").write_text(json.dumps(dict.fromkeys(failed, True)))
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/lib/failed_tests.py", tmp_path], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["tests/a.py::test_one", "tests/b.py::test_two", "tests/c.py::test_three[x@y]"]
