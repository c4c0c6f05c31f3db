"""How far a transfer is: one line in place on a terminal, otherwise a line per file. On stderr, for results go to stdout."""

from __future__ import annotations

import sys
import threading
import time

import click

from paddleflow.cli import output
from paddleflow.cli.session import note

_MOST_NAMED = 10  #: files that failed and are named
_EVERY = 0.1  #: seconds between two drawings


class FileProgress:
    """Counts files and bytes; may be told of them from many threads."""

    def __init__(self, total: int = 0, *, name_files: bool = False) -> None:
        self.files = self.bytes = self.failed = 0
        self._total, self._name_files = total, name_files  #: bytes that are expected; 0: not known
        self._lock = threading.Lock()
        self._begin, self._drawn = time.monotonic(), 0.0
        self._terminal = sys.stderr.isatty()

    def add_bytes(self, size: int) -> None:
        with self._lock:
            self.bytes += size
            self._draw()

    def add_file(self, name: str = "", size: int = 0) -> None:
        with self._lock:
            self.files += 1
            if name and self._name_files and not self._terminal:
                note(f"{name}  {size} bytes")
            self._draw()

    def fail(self, words: str) -> None:
        with self._lock:
            self.failed += 1
            if self.failed <= _MOST_NAMED:
                note(words)

    def _draw(self) -> None:
        now = time.monotonic()
        if not self._terminal or now - self._drawn < _EVERY:
            return
        self._drawn = now
        rate = self.bytes / max(now - self._begin, 0.001)
        line = f"{self.files} files, {output.size(self.bytes)}, {output.size(int(rate))}/s"
        if self._total:
            filled = min(20, 20 * self.bytes // self._total)
            left = output.short_duration(max(0, self._total - self.bytes) / max(rate, 1))
            line = f"[{'=' * filled}{' ' * (20 - filled)}] {100 * self.bytes // self._total}%  {line}, {left} left"
        click.echo(f"\r\033[K{line}", nl=False, err=True)

    def finish(self) -> None:
        if self._terminal and self._drawn:
            click.echo("", err=True)
