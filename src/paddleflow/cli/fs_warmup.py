"""`paddleflow fs warmup`: content of a mount into its cache, before a job needs it.

Reads files through the mount, many at once, as any program would: what a mount caches, and how, stays its own matter.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path

import click

from paddleflow.cli import output
from paddleflow.cli.lazy import Command
from paddleflow.cli.session import Session, note, pass_session
from paddleflow.errors import Unavailable

_PIECE = 2**20
_MOST_NAMED = 10  #: files that could not be read and are named


class _Progress:
    """What was read so far; drawn in place on a terminal."""

    def __init__(self) -> None:
        self.files = self.bytes = self.failed = 0

    def fail(self, error: OSError) -> None:
        self.failed += 1
        if self.failed <= _MOST_NAMED:
            note(f"{error.filename}: {error.strerror}")

    def add(self, done: Future[int | None]) -> None:
        try:
            size = done.result()
        except OSError as error:
            self.fail(error)
            return
        if size is not None:
            self.bytes += size
            self.files += 1
        if sys.stderr.isatty():
            click.echo(f"\r{self.files} files, {self.bytes / 1e6:.0f} MB", nl=False, err=True)

    def finish(self) -> None:
        if sys.stderr.isatty():
            click.echo("", err=True)


@click.command(cls=Command)
@click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path), metavar="PATH...")
@click.option("--threads", type=click.IntRange(1, 64), default=16, show_default=True, help="Files read at once.")
@pass_session
def warmup(session: Session, paths: tuple[Path, ...], threads: int) -> None:
    """Read files and folders of a mount, so that their content is in its cache."""
    progress = _Progress()
    with ThreadPoolExecutor(threads, "warmup") as pool:
        reading: set[Future[int | None]] = set()
        for file in _files(paths, progress):
            reading.add(pool.submit(_read, file))
            if len(reading) >= 2 * threads:
                done, reading = wait(reading, return_when=FIRST_COMPLETED)
                for each in done:
                    progress.add(each)
        for each in reading:
            progress.add(each)
    progress.finish()
    output.show_rows(session, ["files", "bytes"], [[progress.files, progress.bytes]])
    if progress.failed:
        raise Unavailable(f"{progress.failed} files or folders could not be read")


def _files(paths: tuple[Path, ...], progress: _Progress) -> Iterator[Path]:
    """What is at and below the paths, without folders."""
    for path in (path.resolve() for path in paths):
        if not path.is_dir():
            yield path
            continue
        for folder, _, names in os.walk(path, onerror=progress.fail):
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
