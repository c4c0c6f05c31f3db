"""The bootstrap of a server: root, its password at the first start, and a client context that works at once."""

from __future__ import annotations

import asyncio
import contextlib
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
from paddleflow.store import servers
from paddleflow.store.database import Tx
from paddleflow.store.private_file import write_private

LOOPBACK = {"127.0.0.1", "::1", "localhost"}

log = Log("server")


async def bootstrap(platform: Platform, data: Path, address: str) -> None:
    """Root, its password file at the first start, and a client context that works at once."""
    database, clock = platform.database, platform.clock
    fixed = platform.settings.access.root_password
    password = fixed or passwords.random_password()
    made = await ensure_root(database, clock, password, fixed=bool(fixed))
    if made and not fixed:
        write_private(data / "root-password", f"{password}\n")
    token = await database.write(client_token, data / "client-token", clock.now(), platform.settings.access.token_hours)
    try:
        contexts.save_local(address, ROOT, token)
    except (OSError, PaddleFlowError) as error:
        log.warning("no client context was written", reason=str(error))
    write_private(data / "server.json", json.dumps({"url": address, "pid": os.getpid(), "user": ROOT}))
    warn_of_plain_http(platform)
    log.info("serving", address=address, user=ROOT, data=str(data))


async def announce(platform: Platform, server: str, address: str) -> None:
    """Tell the other servers on this database where this one is, again and again, and take leave at the end."""
    if platform.peers is None:
        return
    try:
        while True:
            with contextlib.suppress(PaddleFlowError):  # the database is away: next time
                await platform.database.write(servers.announce, server, address, platform.clock.now())
            await asyncio.sleep(servers.ANNOUNCE_EVERY)
    finally:
        with contextlib.suppress(PaddleFlowError):
            await platform.database.write(servers.withdraw, server)


def warn_of_plain_http(platform: Platform) -> None:
    """Passwords and tokens in the clear are for this machine only."""
    settings = platform.settings.server
    if not settings.tls_cert and settings.host not in LOOPBACK:
        log.warning(
            "serving beyond this machine without TLS: passwords and tokens can be read on the way",
            host=settings.host,
            hint="--tls-cert FILE --tls-key FILE, or --host 127.0.0.1 behind a proxy that has TLS",
        )


def client_token(tx: Tx, file: Path, now: float, hours: float) -> str:
    """The token of the local context: the one that is there while more than half of its time is left, else a new one."""
    if file.exists():
        token = file.read_text("utf-8").strip()
        row = tokens.find(tx, tokens.digest(token))
        if row is not None and row.expires_at - now > hours * 1800:
            return token
    token = tokens.issue(tx, ROOT, now, hours)
    write_private(file, token)
    return token
