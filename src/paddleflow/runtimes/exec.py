"""The optional part of a runtime that starts further commands inside a running attempt: `job exec` and `job shell`.

A runtime that can do so has the method `execute`; `isinstance(runtime, Exec)` tells. The API serves one session per websocket and
knows nothing of processes or pods. What an implementation must keep:

* The command runs as the attempt's own user, in its view of the file system, with its environment and working directory, within its
  limits, and ends with the attempt at the latest.
* `execute` raises NotFound when the attempt does not run, Unavailable when its node cannot be reached, Conflict at a limit.
* `read` gives what the command writes, in order within each stream, and at last its exit code; it holds the command up while nobody
  reads. `write` holds the caller up while the command does not read. `close` ends the command if it still runs.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from paddleflow.base.ids import AttemptId
from paddleflow.base.values import dataclass

STDOUT, STDERR = 1, 2


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """What to run, and where."""

    attempt: AttemptId
    command: tuple[str, ...]
    tty: bool = False  #: on a terminal of its own; all output is then STDOUT
    rows: int = 24
    columns: int = 80


@dataclass(frozen=True, slots=True)
class Output:
    """Bytes that the command wrote."""

    stream: int
    data: bytes


class ExecSession(Protocol):
    """A command inside an attempt."""

    async def read(self) -> Output | int:
        """The next output; the exit code (128 + signal) once all of it was read."""
        ...

    async def write(self, data: bytes) -> None:
        """Bytes for its standard input; none: that is its end. What it does not take any more is dropped."""
        ...

    def resize(self, rows: int, columns: int) -> None:
        """Another size of its terminal, if it has one."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class Exec(Protocol):
    """A runtime that can."""

    async def execute(self, request: ExecRequest) -> ExecSession: ...
