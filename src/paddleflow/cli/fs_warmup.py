"""`paddleflow fs warmup`: content of a mount into its cache, before a job needs it.

Reads files through the mount, many at once, as any program would: what a mount caches, and how, stays its own matter.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import click

from paddleflow.cli import output
from paddleflow.cli.fs_progress import FileProgress
from paddleflow.cli.lazy import Command
from paddleflow.cli.session import Session, pass_session
from paddleflow.errors import Invalid, Unavailable

_PIECE = 2**20
_MOST_LISTED = 64 * 2**20  #: bytes of a list of files


@click.command(cls=Command)
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path), metavar="PATH...")
@click.option(
    "--from",
    "listed",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File that lists paths, one per line.",
)
@click.option(
    "--threads", type=click.IntRange(1, 64), default=16, show_default=True, help="Number of files read in parallel."
)
@pass_session
def warmup(session: Session, paths: tuple[Path, ...], listed: Path | None, threads: int) -> None:
    """Read files and folders of a mount into its cache. Content that is cached already is not transferred again, so an
    interrupted warm-up can be resumed."""
    paths += _read_list(listed) if listed else ()
    if not paths:
        raise click.UsageError("name paths, or a file with paths by --from")
    progress = FileProgress()
    with ThreadPoolExecutor(threads, "warmup") as pool:
        reading: set[Future[int | None]] = set()
        for file in _files(paths, progress):
            reading.add(pool.submit(_read, file))
            if len(reading) >= 2 * threads:
                done, reading = wait(reading, return_when=FIRST_COMPLETED)
                for each in done:
                    _count(progress, each)
        for each in reading:
            _count(progress, each)
    progress.finish()
    output.show_rows(session, ["files", "bytes"], [[progress.files, progress.bytes]])
    if progress.failed:
        raise Unavailable(f"{progress.failed} files or folders could not be read")


def _read_list(file: Path) -> tuple[Path, ...]:
    if file.stat().st_size > _MOST_LISTED:
        raise Invalid(f"{file} has {file.stat().st_size} bytes; a list of paths has at most {_MOST_LISTED}")
    return tuple(Path(line) for line in file.read_text("utf-8").splitlines() if line.strip())


def _count(progress: FileProgress, done: Future[int | None]) -> None:
    try:
        size = done.result()
    except OSError as error:
        progress.fail(f"{error.filename}: {error.strerror}")
        return
    if size is not None:
        progress.add_file()
        progress.add_bytes(size)


def _files(paths: tuple[Path, ...], progress: FileProgress) -> Iterator[Path]:
    """What is at and below the paths, without folders."""
    for path in (path.resolve() for path in paths):
        if not path.is_dir():
            yield path
            continue
        for folder, _, names in os.walk(
            path, onerror=lambda error: progress.fail(f"{error.filename}: {error.strerror}")
        ):
            for name in names:
                yield Path(folder, name)


def _read(file: Path) -> int | None:
    """Read to the end; how many bytes that were. None: no regular file; a link's target is somewhere else, a FIFO blocks."""
    if not stat.S_ISREG(file.lstat().st_mode):
        return None
    size = 0
    with file.open("rb", buffering=0) as opened:
        buffer = bytearray(_PIECE)
        try:
            while count := opened.readinto(buffer):
                size += count
        except OSError as error:
            error.filename = str(file)
            raise
    return size
