"""The walk of a submit as ARCHITECTURE.md has it: which functions stand between the socket and the first SQL statement."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from paddleflow.jobs.submission import submit
from paddleflow.store.sqlite import SqliteTx
from paddleflow.store.threads import DatabaseCall, WorkerThreads
from tests.api.client import Api

PAGE = Path(__file__).resolve().parents[2] / "ARCHITECTURE.md"


def our_callers(frame: FrameType | None) -> list[str]:
    """Functions of ours on the stack, the outermost first; those of the database's package are one step, named by the caller."""
    found: list[str] = []
    while frame is not None:
        file = frame.f_code.co_filename
        if "/src/paddleflow/" in file and "/src/paddleflow/store/" not in file:
            found.append(frame.f_code.co_qualname.rpartition("<locals>.")[2])
        frame = frame.f_back
    return found[::-1]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.usefixtures("ready")
async def test_the_page_names_the_functions_between_socket_and_sql(root: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    (await root.get("/whoami")).ok()  # afterwards the caller is known
    on_the_loop: list[str] = []
    on_the_thread: list[list[str]] = []
    enqueue, execute = WorkerThreads._enqueue, SqliteTx._execute

    def noting_enqueue(self: WorkerThreads, call: DatabaseCall[Any]) -> DatabaseCall[Any]:
        if call.fn is submit:
            on_the_loop.extend(our_callers(sys._getframe(1)))
        return enqueue(self, call)

    def noting_execute(self: SqliteTx, *args: Any, **kwargs: Any) -> Any:
        on_the_thread.append(our_callers(sys._getframe(1)))
        return execute(self, *args, **kwargs)

    monkeypatch.setattr(WorkerThreads, "_enqueue", noting_enqueue)
    monkeypatch.setattr(SqliteTx, "_execute", noting_execute)
    (await root.post("/job/single", {"command": "true"})).ok()

    text = re.sub(r"\s+", " ", PAGE.read_text("utf-8"))
    count, names = re.findall(r"first SQL statement of a submit stand (\d+) functions, [^:]*: (.*?)\. ", text)[0]
    named = re.findall(r"`([\w.]+)`", names)
    assert named == [*on_the_loop, "Database.write", *on_the_thread[0]]
    assert len(named) == int(count) <= 7
