"""Wake-ups between servers that share a PostgreSQL database, by LISTEN and NOTIFY.

One thread with one connection listens and sends. Waiters of this process are woken directly, without the way through the
server. While the connection is lost, wake-ups of others are too; once it is back everybody is woken, and queries again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import select
import socket
import threading
from contextlib import AbstractContextManager

import psycopg

from paddleflow.errors import PaddleFlowError
from paddleflow.store.bus import LocalBus, Subscription
from paddleflow.store.postgres import conninfo, meaning

_NOTIFY = "select pg_notify('paddleflow', topic) from unnest(%(topics)s::text[]) as topic"
_MOST = 10_000  #: topics kept while the server is away; what is beyond is lost
_PAUSE = 0.5  #: seconds between two attempts to connect

Connection = psycopg.Connection[tuple[object, ...]]

log = logging.getLogger(__name__)


class PostgresBus:
    """Wake-ups within this process and to all others on the same database."""

    def __init__(self, url: str) -> None:
        """Connects, and blocks until the server has answered: from then on nothing is lost while the server lives."""
        self._info = conninfo(url)
        self._connection = self._listen()
        self._local = LocalBus()
        self._lock = threading.Lock()
        self._outbox: set[str] = set()  # equal topics that pile up are sent once
        self._ended = threading.Event()
        self._wake_end, self._notify_end = socket.socketpair()  # a byte into one end wakes the thread at the other
        self._thread = threading.Thread(target=self._serve, name="database-bus", daemon=True)
        self._thread.start()

    def wake(self, topic: str) -> None:
        self._local.wake(topic)
        with self._lock:
            if self._ended.is_set() or len(self._outbox) == _MOST:
                return
            first = not self._outbox  # otherwise the thread has been woken, and has not yet read it
            self._outbox.add(topic)
            if first:
                self._notify_end.send(b"!")

    async def wait(self, topic: str, seconds: float) -> bool:
        return await self._local.wait(topic, seconds)

    def subscribe(self, topic: str) -> AbstractContextManager[Subscription]:
        return self._local.subscribe(topic)

    async def close(self) -> None:
        with self._lock:
            if not self._ended.is_set():
                self._ended.set()
                self._notify_end.send(b"!")
        await asyncio.to_thread(self._thread.join)
        await self._local.close()
        self._wake_end.close()
        self._notify_end.close()

    def _listen(self) -> Connection:
        try:
            connection = psycopg.Connection.connect(self._info, autocommit=True)
            try:
                connection.execute("listen paddleflow")
            except psycopg.Error:
                connection.close()
                raise
        except psycopg.Error as error:
            raise meaning(error) from error
        return connection

    def _serve(self) -> None:
        while True:
            try:
                self._exchange(self._connection)
            except psycopg.Error as error:
                log.warning("wake-ups between servers are lost for now: %s", error)
            self._connection.close()
            while True:
                if self._ended.wait(_PAUSE):
                    return
                with contextlib.suppress(PaddleFlowError):
                    self._connection = self._listen()
                    break
            self._local.wake_all()

    def _exchange(self, connection: Connection) -> None:
        me = connection.info.backend_pid
        while True:
            with self._lock:
                topics, self._outbox = self._outbox, set()
            if topics:
                connection.execute(_NOTIFY, {"topics": list(topics)})
            # After sending, because what came in meanwhile is in the driver's hands and no longer in the socket.
            for notify in connection.notifies(timeout=0):
                if notify.pid != me:
                    self._local.wake(notify.payload)
            if self._ended.is_set():
                return
            bell = self._wake_end.fileno()
            if bell in select.select([connection.fileno(), bell], [], [])[0]:
                self._wake_end.recv(4096)
