"""Whether the process lives (``/healthz``) and whether it can serve (``/readyz``). Open to all, and outside the prefix."""

from __future__ import annotations

import asyncio

from paddleflow.api.platform import Check, Platform
from paddleflow.api.routing import Call, NoBody, NoQuery, Route
from paddleflow.errors import Fault, PaddleFlowError, Unavailable
from paddleflow.spec import wire
from paddleflow.store.database import Tx
from paddleflow.store.statements import Statement

_PATIENCE = 2.0  #: seconds that a check may take
_ONE = Statement("one", "Whether the database answers.", "select 1", "select 1")


async def healthz(platform: Platform, call: Call[NoBody, NoQuery]) -> wire.Health:
    return {"status": "ok"}


async def readyz(platform: Platform, call: Call[NoBody, NoQuery]) -> wire.Health:
    async def database() -> str:
        await platform.database.read(_answer)
        return ""

    async def server() -> str:
        return "is stopping" if platform.closing.is_set() else ""

    async def find() -> list[Fault]:
        checks: dict[str, Check] = {"server": server, "database": database, **platform.checks}
        return [Fault(name, fault) for name, check in checks.items() if (fault := await _fault(check))]

    if faults := await platform.faults.get(find):
        raise Unavailable("; ".join(map(str, faults)), details=faults)
    return {"status": "ok"}


def _answer(tx: Tx) -> None:
    tx.value(_ONE)


async def _fault(check: Check) -> str:
    try:
        async with asyncio.timeout(_PATIENCE):
            return await check()
    except TimeoutError:
        return f"gave no answer within {_PATIENCE:g} s"
    except PaddleFlowError as error:
        return error.message


ROUTES: tuple[Route, ...] = (
    Route("GET", "/healthz", healthz, "Whether the process lives", answer=wire.Health, open=True, prefix=""),
    Route(
        "GET",
        "/readyz",
        readyz,
        "Whether requests can be answered, and what stands in the way",
        answer=wire.Health,
        open=True,
        prefix="",
    ),
)
