"""S3 servers for tests: a test skips, with one line that says how to install it, where a server is absent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest

from scripts.lib import s3_servers
from scripts.lib.s3_servers import KEYS, NotInstalled, S3Server

__all__ = ["KEYS", "S3Server", "seaweedfs", "versitygw"]


@contextmanager
def _or_skip(start: Callable[[], AbstractContextManager[S3Server]]) -> Iterator[S3Server]:
    with ExitStack() as stack:
        try:
            server = stack.enter_context(start())
        except NotInstalled as error:
            pytest.skip(str(error))
        yield server


def versitygw() -> AbstractContextManager[S3Server]:
    return _or_skip(s3_servers.versitygw)


def seaweedfs() -> AbstractContextManager[S3Server]:
    return _or_skip(s3_servers.seaweedfs)
