"""A command inside the container of an attempt, by the API server's websocket (`pods/exec`).

Kubernetes leaves a command running when its caller goes. Ours is started by a shell that gives it a variable of the session, by which
`close` finds it and what it has started, and ends them.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Sequence
from contextlib import suppress

from paddleflow.errors import PaddleFlowError, Unavailable
from paddleflow.kube.client import Client
from paddleflow.kube.websocket import WebSocket
from paddleflow.runtimes.exec import STDERR, STDOUT, ExecRequest, Output
from paddleflow.runtimes.kubernetes.pods import CONTAINER

_STDIN, _END, _RESIZE, _CLOSE = 0, 3, 4, 255  #: channels beside output and errors
_VARIABLE = "PF_EXEC_SESSION"
_PIECE = 256 * 2**10  #: bytes of input in one message
_KILL = (
    "for p in /proc/[0-9]*; do"
    f" if tr '\\0' '\\n' < $p/environ 2> /dev/null | grep -qx {_VARIABLE}=$0; then kill -$1 ${{p#/proc/}}; fi; done"
)
_LIMIT = 5.0  #: seconds for ending a command


class PodExec:
    """An `ExecSession`."""

    def __init__(self, client: Client, pod: str, space: str, socket: WebSocket, session: str, tty: bool) -> None:
        self._client = client
        self._pod = pod
        self._space = space
        self._socket = socket
        self._session = session
        self._tty = tty
        self._ended = False

    async def read(self) -> Output | int:
        while (message := await self._socket.receive()) is not None:
            channel, data = message[0] if message else -1, message[1:]
            if channel in {STDOUT, STDERR} and data:
                return Output(channel, data)
            if channel == _END:
                self._ended = True
                return exit_code(data)
        raise Unavailable("the command's connection ended before it did: its pod or node has gone")

    async def write(self, data: bytes) -> None:
        if not data:
            await self._send(b"\x00\x04" if self._tty else bytes([_CLOSE, _STDIN]))
        for start in range(0, len(data), _PIECE):
            await self._send(bytes([_STDIN]) + data[start : start + _PIECE])

    def resize(self, rows: int, columns: int) -> None:
        if self._tty:
            size = json.dumps({"Width": columns, "Height": rows}).encode()
            self._socket.post(bytes([_RESIZE]) + size)

    async def _send(self, message: bytes) -> None:
        with suppress(Unavailable):  # what it does not take any more is dropped
            await self._socket.send(message)

    async def close(self) -> None:
        await self._socket.close()
        if self._ended:
            return
        for signal in ("HUP", "KILL"):
            with suppress(PaddleFlowError, TimeoutError):
                async with asyncio.timeout(_LIMIT):
                    await self._kill(signal)

    async def _kill(self, signal: str) -> None:
        words = ("/bin/sh", "-c", _KILL, self._session, signal)
        socket = await self._client.execute(self._pod, self._space, words, container=CONTAINER)
        try:
            while await socket.receive() is not None:
                pass
        finally:
            await socket.close()


async def open_exec(client: Client, pod: str, space: str, request: ExecRequest) -> PodExec:
    session = secrets.token_hex(8)
    begin = f'export {_VARIABLE}={session}; exec "$@"'
    words = ("/bin/sh", "-c", begin, "sh", *request.command)
    socket = await client.execute(pod, space, words, container=CONTAINER, tty=request.tty)
    made = PodExec(client, pod, space, socket, session, request.tty)
    made.resize(request.rows, request.columns)
    return made


async def send(client: Client, pod: str, space: str, container: str, command: Sequence[str], data: bytes) -> None:
    """Run a command in a container that reads `data`; `Unavailable` when it fails."""
    socket = await client.execute(pod, space, command, container=container)
    try:
        async with asyncio.TaskGroup() as group:
            writing = group.create_task(_send_all(socket, data))
            why = await _failure(socket)
            writing.cancel()
    finally:
        await socket.close()
    if why:
        raise Unavailable(why)


async def _failure(socket: WebSocket) -> str:
    """Why a command failed, once it has ended; empty when it did not."""
    said = b""
    try:
        while (message := await socket.receive()) is not None:
            if message[:1] == bytes([_END]):
                code = exit_code(message[1:])
                return f"exit code {code} {said.decode('utf-8', 'replace')}".strip() if code else ""
            said = (said + message[1:])[-500:]
    except Unavailable as error:
        return error.message
    return "the connection ended before the command did"


async def _send_all(socket: WebSocket, data: bytes) -> None:
    with suppress(Unavailable):  # the reader says so
        for start in range(0, len(data), _PIECE):
            await socket.send(bytes([_STDIN]) + data[start : start + _PIECE])


def exit_code(status: bytes) -> int:
    """The exit code in a Status; `Unavailable` with its words when the command did not run."""
    found = json.loads(status or b"{}")
    if found.get("status") == "Success":
        return 0
    for cause in (found.get("details") or {}).get("causes") or ():
        if cause.get("reason") == "ExitCode":
            return int(cause["message"])
    raise Unavailable(f"the command did not run: {found.get('message') or found.get('reason')}")
