"""Waits until the server of a data folder answers, for scripts/start: wait_ready.py DATA PID LOG OFFSET

Prints its address and ends with 0; when the process is gone before, shows what it wrote to its log from OFFSET on and ends with 1.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

PATIENCE = 60.0  #: seconds


def address(data: Path, pid: int) -> str | None:
    """The address of the server with this process id, once it is ready."""
    try:
        told = json.loads((data / "server.json").read_text("utf-8"))
        if told["pid"] != pid:
            return None
        connection = http.client.HTTPConnection(urlsplit(told["url"]).netloc, timeout=5)
        connection.request("GET", "/readyz")
        return str(told["url"]) if connection.getresponse().status == 200 else None
    except (OSError, ValueError, KeyError, http.client.HTTPException):
        return None


def lives(pid: int) -> bool:
    """Whether the process is there and not just waiting to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def main(data: Path, pid: int, log: Path, offset: int) -> int:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if url := address(data, pid):
            print(url)
            return 0
        if not lives(pid):
            break
        time.sleep(0.02)
    else:
        print(f"the server was not ready within {PATIENCE:.0f} s", file=sys.stderr)
    with log.open("rb") as lines:
        lines.seek(max(offset, log.stat().st_size - 4000))
        sys.stderr.write(lines.read().decode(errors="replace"))
    return 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])))
