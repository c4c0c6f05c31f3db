"""The websocket of `job exec` and `job shell`: a further command inside a running member of a job.

The client's first message is text: what to run. After it, bytes are the command's input; text is another size of its terminal, or the
end of the input. The server sends bytes, each message with 1 (output) or 2 (errors) before it, and at last text: the exit code, or
an error. It ends the command when the client goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json

from pydantic import Field
from starlette.websockets import WebSocket, WebSocketDisconnect

from paddleflow.access.audit import AuditEntry
from paddleflow.access.callers import Caller, require_scope
from paddleflow.api import requests
from paddleflow.api.jobs import owned_job
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Socket
from paddleflow.base.ids import attempt_id, task_id
from paddleflow.base.names import nearest
from paddleflow.errors import Conflict, Invalid, NotFound, PaddleFlowError, TimedOut
from paddleflow.jobs.queries import get_tasks
from paddleflow.runtimes.exec import Exec, ExecRequest, ExecSession, Output
from paddleflow.spec.document import Document, decode
from paddleflow.store.database import Tx

FIRST_MESSAGE = 20.0  #: seconds in which the client says what to run
MOST_WORDS = 64 * 2**10  #: characters of a command
MOST_DOCUMENT = 8 * MOST_WORDS  #: of the first message, in which JSON may spell a character with six


class ExecDocument(Document):
    """The first message: what to run, and where."""

    command: list[str] = Field(min_length=1, max_length=1000)
    member: str = ""  #: such as worker-0; may be left out where there is one only
    tty: bool = False
    rows: int = Field(default=24, ge=1, le=10_000)
    columns: int = Field(default=80, ge=1, le=10_000)


async def execute(platform: Platform, caller: Caller, websocket: WebSocket) -> None:
    await websocket.accept()
    status, session = 200, None
    try:
        require_scope(caller, "submit", "job exec")
        with platform.exec_sessions.counted(caller.name):
            request, cluster = await _request(platform, caller, websocket)
            runtime: object = platform.jobs_run_here.runtime_of(cluster)
            if not isinstance(runtime, Exec):
                raise Invalid("the cluster of this job cannot start further commands in it", code="ActionNotAllowed")
            session = await runtime.execute(request)
            try:
                await _serve(platform, websocket, session)
            finally:
                await session.close()
    except PaddleFlowError as error:
        status = error.status
        body = {"status": error.status, "code": error.code, "message": error.message, "hint": error.hint}
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await websocket.send_text(json.dumps({"error": body}))
            await websocket.close()
    except (WebSocketDisconnect, RuntimeError):
        status = 499  # the client has gone
    finally:
        _audit(platform, caller, websocket, status)


async def _request(platform: Platform, caller: Caller, websocket: WebSocket) -> tuple[ExecRequest, str]:
    """What to run, and the cluster of its job."""
    try:
        async with asyncio.timeout(FIRST_MESSAGE):
            first = await websocket.receive()
    except TimeoutError as error:
        raise TimedOut(f"the client did not say what to run within {FIRST_MESSAGE:g} s") from error
    if first["type"] == "websocket.disconnect":
        raise WebSocketDisconnect
    if len(first.get("text") or "") not in range(1, MOST_DOCUMENT + 1):
        raise Invalid(f"the first message is text of at most {MOST_DOCUMENT} characters: what to run")
    wanted = decode(ExecDocument, first["text"].encode())
    if fault := _fault(wanted.command):
        raise Invalid(f"command: {fault}", code="InvalidArguments")
    job = websocket.path_params["id"]

    def find(tx: Tx) -> tuple[ExecRequest, str]:
        row = owned_job(tx, caller, job)
        tasks = {f"{task.role}-{task.idx}": task for task in get_tasks(tx, job) if task.attempt == row.attempt}
        if wanted.member and wanted.member not in tasks:
            hint = nearest(wanted.member[:80], tasks)
            raise NotFound(f"job[{job}] has no member[{wanted.member[:80]}]", code="JobNotFound", hint=hint)
        running = [name for name, task in tasks.items() if task.status == "running"]
        name = wanted.member or (running[0] if running else "")
        if name not in running:
            raise Conflict(f"job[{job}] is {row.status}: {name or 'no member'} runs", code="InvalidState")
        task = tasks[name]
        attempt = attempt_id(task_id(job, task.role, task.idx), row.attempt)
        return ExecRequest(attempt, tuple(wanted.command), wanted.tty, wanted.rows, wanted.columns), row.cluster

    return await platform.database.read(find)


def _fault(command: list[str]) -> str:
    """Why no process can be started with such words; empty if one can."""
    text = "".join(command)
    if len(text) > MOST_WORDS:
        return f"has {len(text)} characters, at most {MOST_WORDS}"
    if not command[0]:
        return "its first word, the program, is empty"
    if "\0" in text:
        return "holds a NUL character"
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        return "holds half a surrogate pair"
    return ""


async def _serve(platform: Platform, websocket: WebSocket, session: ExecSession) -> None:
    """Until the command has ended, the client has gone or the server stops. Raises what broke the session, such as a node that has gone."""
    broken: list[PaddleFlowError] = []

    async def take_input() -> None:
        while True:
            message = await websocket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect
            if (data := message.get("bytes")) is not None:
                await session.write(data)
            else:
                said = json.loads(message.get("text") or "{}")
                if said.get("end"):
                    await session.write(b"")
                elif {"rows", "columns"} <= said.keys():
                    session.resize(*(min(max(int(said[key]), 1), 10_000) for key in ("rows", "columns")))

    async def send_output() -> None:
        try:
            while isinstance(found := await session.read(), Output):
                await websocket.send_bytes(bytes([found.stream]) + found.data)
        except PaddleFlowError as error:
            broken.append(error)
            return
        await websocket.send_text(json.dumps({"exit": found}))
        await websocket.close()

    tasks: list[asyncio.Task[object]] = []
    try:
        async with asyncio.TaskGroup() as group:
            tasks += [group.create_task(work()) for work in (take_input, send_output)]
            tasks.append(group.create_task(platform.closing.wait()))
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
    except* (WebSocketDisconnect, RuntimeError, ValueError, TypeError, AttributeError):
        pass  # the client has gone, or does not speak this language
    if broken:
        raise broken[0]


def _audit(platform: Platform, caller: Caller, websocket: WebSocket, status: int) -> None:
    platform.audit.record(
        AuditEntry(
            at=platform.clock.now(),
            user_name=caller.name,
            user_id=caller.id,
            address=websocket.client.host if websocket.client else "",
            method="EXEC",
            path=f"/job/{websocket.path_params['id']}/exec",
            status=status,
            request_id=requests.request_id(dict(websocket.scope["headers"])),
        )
    )


SOCKETS = (Socket("/job/{id}/exec", execute, "Starts a further command inside a running member of a job."),)
