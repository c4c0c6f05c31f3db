"""A command inside a running member of a job, as `Job.execute` gives it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from paddleflow.errors import Unavailable
from paddleflow.sdk.records import table
from paddleflow.sdk.transport import refusal
from paddleflow.sdk.websocket import WebSocket

STDOUT, STDERR = 1, 2


class JobExec:
    """Output comes by iterating; `exit_code` is known behind the last of it. Input may be sent from another thread."""

    def __init__(
        self, socket: WebSocket, command: Sequence[str], member: str | None, tty: bool, size: tuple[int, int]
    ) -> None:
        self._socket = socket
        self.exit_code: int | None = None
        wanted = {"command": list(command), "member": member or "", "tty": tty, "rows": size[0], "columns": size[1]}
        socket.send(json.dumps(wanted))

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        """(1 for standard output or 2 for standard error, bytes), until the command has ended."""
        while (message := self._socket.receive()) is not None:
            if isinstance(message, bytes):
                yield message[0], message[1:]
                continue
            said = table(json.loads(message))
            if "error" in said:
                error = table(said["error"])
                raise refusal(int(error.get("status", 500)), "", json.dumps(error).encode(), "")
            self.exit_code = int(said["exit"])
            self._socket.close()
            return
        raise Unavailable("the server ended the session")

    def write(self, data: bytes) -> None:
        """For its standard input."""
        if data:
            self._socket.send(data)

    def end_input(self) -> None:
        self._socket.send(json.dumps({"end": True}))

    def resize(self, rows: int, columns: int) -> None:
        self._socket.send(json.dumps({"rows": rows, "columns": columns}))

    def close(self) -> None:
        """Ends the command if it still runs."""
        self._socket.close()
