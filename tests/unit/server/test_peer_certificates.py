"""Servers that ask each other over TLS at addresses which their certificate does not name, as pods of a deployment do."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from pathlib import Path
from typing import cast

import pytest

from paddleflow.api.peers import Peers
from paddleflow.base.clock import SystemClock
from paddleflow.errors import Unavailable
from paddleflow.server.listener import peer_contexts
from paddleflow.settings import ServerSettings
from paddleflow.store.database import Database
from paddleflow.store.servers import LeaseHolder


def make_certificate(folder: Path, name: str) -> ServerSettings:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    cert, key = folder / f"{name}.crt", folder / f"{name}.key"
    words = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}")
    more = ("-addext", f"subjectAltName=DNS:{name}", "-keyout", str(key), "-out", str(cert))
    subprocess.run([openssl, *words, *more], check=True, capture_output=True)
    return ServerSettings(tls_cert=str(cert), tls_key=str(key))


async def test_the_certificate_that_servers_share_is_enough_and_another_one_is_not(tmp_path: Path) -> None:
    ours, theirs = make_certificate(tmp_path, "paddleflow"), make_certificate(tmp_path, "stranger")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(ours.tls_cert, ours.tls_key)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    async with server:
        address = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        holder = LeaseHolder("server-2", address)
        no_database = cast("Database", None)
        _, writer = await Peers(no_database, SystemClock(), "server-1", "c", peer_contexts(ours))._connect(holder)
        writer.close()
        with pytest.raises(Unavailable):
            await Peers(no_database, SystemClock(), "server-1", "c", peer_contexts(theirs))._connect(holder)
