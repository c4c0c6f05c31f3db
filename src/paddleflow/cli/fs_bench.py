"""`paddleflow fs bench`: how fast a folder is, mount or not, by the operations that training jobs wait for.

Everything happens in a fresh folder below the one that is named, which is removed at the end. The page cache is dropped before
reading where this account may do so; the figures say whether.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import Command, byte_count
from paddleflow.cli.session import Session, pass_session
from paddleflow.errors import Invalid, Unavailable

_PIECE = 2**20
_RANDOM_READ = 4096
_SECONDS = 5.0  #: of random reads


@click.command(cls=Command)
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path), metavar="DIR")
@click.option(
    "--size", "large", default="256Mi", show_default=True, callback=byte_count, help="Size of the large file."
)
@click.option(
    "--files", type=click.IntRange(1, 1_000_000), default=1000, show_default=True, help="Number of small files."
)
@click.option(
    "--file-size", "small", default="100Ki", show_default=True, callback=byte_count, help="Size of each small file."
)
@click.option(
    "--threads",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    help="Number of small files that are written and read in parallel.",
)
@pass_session
def bench(session: Session, folder: Path, large: int, files: int, small: int, threads: int) -> None:
    """Measure the read and write speed of a folder: one large file, random reads in it, many small files.

    \b
    Examples:
      paddleflow fs bench /mnt/team
      paddleflow fs bench /mnt/team --files 20000 --json
    """
    free = shutil.disk_usage(folder).free
    if large + files * small > free:
        raise Invalid(
            f"{large + files * small} bytes are wanted, {free} are free in {folder}",
            hint="choose less with --size or --files",
        )
    try:
        with tempfile.TemporaryDirectory(prefix=".paddleflow-bench-", dir=folder) as place:
            rows = [[*row] for row in _measure(Path(place), large, files, small, threads)]
    except OSError as error:
        raise Unavailable(f"{folder} cannot be measured: {error.strerror}") from error
    output.show_rows(session, ["operation", "amount", "unit", "seconds", "rate", "page cache"], rows)


def _measure(place: Path, large: int, files: int, small: int, threads: int) -> Iterator[tuple[object, ...]]:
    big, many = place / "large", place / "small"
    piece = random.randbytes(_PIECE)  # noqa: S311 not a secret
    with _timed() as took, big.open("wb", buffering=0) as file:
        for at in range(0, large, _PIECE):
            file.write(piece[: large - at])
        os.fsync(file.fileno())
    yield "write", large, "bytes", *took(large), "-"
    cache = _drop_cache()
    with _timed() as took, big.open("rb", buffering=0) as file:
        while file.read(_PIECE):
            pass
    yield "read", large, "bytes", *took(large), cache
    cache = _drop_cache()
    with _timed() as took:
        reads = _read_at_random(big, large)
    yield "random read 4 KiB", reads, "reads", *took(reads), cache
    many.mkdir()
    names = [many / f"{number:07}" for number in range(files)]
    content = random.randbytes(min(small, _PIECE))  # noqa: S311 not a secret
    content = (content * (small // len(content) + 1))[:small]
    with ThreadPoolExecutor(threads, "bench") as pool:
        for operation, action in _actions(content):
            cache = _drop_cache() if operation == "read small files" else "-"
            with _timed() as took:
                for _ in pool.map(action, names, chunksize=1):
                    pass
            yield operation, files, "files", *took(files), cache
            if operation == "stat":
                with _timed() as took:
                    found = sum(1 for _ in os.scandir(many))
                yield "list", found, "files", *took(found), "-"


def _actions(content: bytes) -> Iterator[tuple[str, Callable[[Path], object]]]:
    yield "write small files", lambda path: path.write_bytes(content)
    yield "stat", os.stat
    yield "read small files", Path.read_bytes
    yield "remove", os.unlink


def _read_at_random(path: Path, size: int) -> int:
    """For a bounded time; how many reads that were."""
    chosen, deadline, count = random.Random(7), time.monotonic() + _SECONDS, 0  # noqa: S311 not a secret
    with path.open("rb", buffering=0) as file:
        while count < 100_000 and time.monotonic() < deadline:
            os.pread(file.fileno(), _RANDOM_READ, chosen.randrange(max(1, size - _RANDOM_READ)))
            count += 1
    return count


@contextmanager
def _timed() -> Iterator[Callable[[int], tuple[float, float]]]:
    """Gives a function for (seconds, amount a second) of the block, to be called after it."""
    begin = time.perf_counter()
    ended: list[float] = []

    def took(amount: int) -> tuple[float, float]:
        seconds = max(ended[0] - begin, 1e-6)
        return round(seconds, 4), round(amount / seconds, 1)

    try:
        yield took
    finally:
        ended.append(time.perf_counter())


def _drop_cache() -> str:
    """Make the next read come from the disk, where this account may; whether it did."""
    try:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("1")
    except OSError:
        return "kept"
    return "dropped"
