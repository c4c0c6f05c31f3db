"""The decision log: what the scheduler of a cluster saw and decided, on disk.

Files of JSON lines, each of which begins with a snapshot and can be replayed alone. A turn only appends to a list in memory; `keep_log`
writes it beside the turns, so a crash loses the last half second, and the next engine begins with a snapshot of its own. `read` is
for replays and what-if questions. Bounded: the oldest files go when all of them together are larger than the settings
say. Nothing depends on these files: what cannot be read is left out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from paddleflow.base.clock import Clock
from paddleflow.base.json_text import json_text
from paddleflow.base.log import Log
from paddleflow.queues.model import DEFAULT_CLUSTER
from paddleflow.scheduling.codec import decode, encode
from paddleflow.scheduling.record import Checkpoint, Entry, Recorded

_FILES = 8  #: about so many files are kept
KEEP_EVERY = 0.5  #: seconds

log = Log("engine")


def folder_of(data: Path, cluster: str) -> Path:
    """Where a server with this data folder keeps the log of a cluster."""
    return data / "decisions" if cluster == DEFAULT_CLUSTER else data / "decisions" / cluster


class DecisionLog:
    """Writes the record of one engine."""

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self._folder = folder
        self._most = most_bytes
        self._file: Path | None = None
        self._size = 0
        self._first = 0  # bytes of the snapshot that the file begins with

    @property
    def long(self) -> bool:
        """Whether it is time for a new file, and so for a new snapshot."""
        return self._size > max(self._most // _FILES, 4 * self._first)

    def append(self, entries: Iterable[Entry], at: float) -> None:
        """Write them; each snapshot begins a new file. OSError when the disk does not take them."""
        lines: list[str] = []
        for entry in entries:
            if isinstance(entry, Checkpoint):
                self._write(lines)
                lines = [json_text(encode(entry))]
                self._begin(at, len(lines[0]))
            else:
                lines.append(json_text(encode(entry)))
        self._write(lines)

    def _begin(self, at: float, first: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        last = max((number(path) for path in self._folder.glob("*.jsonl")), default=0)
        self._file = self._folder / f"{max(int(at * 1000), last + 1):015}.jsonl"
        self._size, self._first = 0, first
        files = sorted(self._folder.glob("*.jsonl"), reverse=True)
        total = first
        for path in files:
            total += path.stat().st_size
            if total > self._most:
                path.unlink()

    def _write(self, lines: list[str]) -> None:
        if lines and self._file is not None:
            text = "\n".join(lines) + "\n"
            with self._file.open("a", encoding="utf-8") as file:
                file.write(text)
            self._size += len(text)


def number(path: Path) -> int:
    """Milliseconds of the epoch at which a file begins."""
    return int(path.stem) if path.stem.isdecimal() else 0


def read(folder: Path, since: float = 0.0) -> Iterator[Entry]:
    """The record from the last file that begins before `since`; an unfinished line ends its file."""
    files = sorted(folder.glob("*.jsonl"), key=number)
    before = [path for path in files if number(path) <= since * 1000]
    for path in [*before[-1:], *[path for path in files if number(path) > since * 1000]]:
        with path.open("r", encoding="utf-8") as file:
            for line in file:
                try:
                    yield decode(json.loads(line))
                except ValueError:
                    break


async def keep_log(folder: Path, most_bytes: int, scheduler: Callable[[], Recorded | None], clock: Clock) -> None:
    """Write down what an engine's scheduler does, for ever; nothing if there is no room for it."""
    if not most_bytes:
        return
    kept = DecisionLog(folder, most_bytes)
    last: Recorded | None = None
    while True:
        await asyncio.sleep(KEEP_EVERY)
        current = scheduler()
        if current is None:
            continue
        entries = [] if last is None else last.take()
        if current is not last:
            last = current
            entries += last.take()
        if not last.recording or kept.long:
            last.begin()
            entries += last.take()
        if entries:
            try:
                await asyncio.to_thread(kept.append, entries, clock.now())
            except OSError as error:
                log.warning("decisions are not kept", folder=str(folder), reason=str(error))
