"""Prints the tests that failed in the last run of pytest, one on a line: failed_tests.py CACHE_FOLDER

With --dist loadgroup an id ends with the group that ran it (`…::test_mount@cluster`), which pytest itself does not know.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

for test in json.loads((Path(sys.argv[1]) / "v/cache/lastfailed").read_text("utf-8")):
    print(re.sub(r"@[\w-]+$", "", test))
