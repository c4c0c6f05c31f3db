"""What a server leaves for those who come: root, its password at the first start, and a client context that works."""

from __future__ import annotations

import json
import os
from pathlib import Path

from paddleflow.access import passwords, tokens
from paddleflow.access.callers import ROOT
from paddleflow.access.sessions import ensure_root
from paddleflow.api.platform import Platform
from paddleflow.base.log import Log
from paddleflow.errors import PaddleFlowError
from paddleflow.sdk import contexts
from paddleflow.server.secrets import write_secret

log = Log("server")


async def welcome(platform: Platform, data: Path, address: str) -> None:
    """Root, its password file at the first start, and a client context that works at once."""
    database, clock = platform.database, platform.clock
    fixed = platform.settings.access.root_password
    password = fixed or passwords.random_password()
    made = await ensure_root(database, clock, password, fixed=bool(fixed))
    if made and not fixed:
        write_secret(data / "root-password", f"{password}\n")
    token_file = data / "client-token"
    if token_file.exists():
        await database.write(tokens.end, tokens.digest(token_file.read_text("utf-8").strip()))
    hours = platform.settings.access.token_hours
    token = await database.write(tokens.issue, ROOT, clock.now(), hours)
    write_secret(token_file, token)
    try:
        contexts.save_local(address, ROOT, token)
    except (OSError, PaddleFlowError) as error:
        log.warning("no client context was written", reason=str(error))
    write_secret(data / "server.json", json.dumps({"url": address, "pid": os.getpid(), "user": ROOT}))
    log.info("serving", address=address, user=ROOT, data=str(data))
