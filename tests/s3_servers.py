"""S3 servers for tests, and a bucket of one: a test skips, with one line that says how to install it, where a server is absent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest

from paddleflow.objects.s3 import Bucket, S3Store
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


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3Server]:
    with versitygw() as made:
        yield made


@pytest.fixture
def bucket(s3_server: S3Server) -> Bucket:
    """A new prefix of a bucket."""
    return s3_server.bucket()


@pytest.fixture
def store(bucket: Bucket) -> Iterator[S3Store]:
    """What lies in `bucket`."""
    made = S3Store(bucket)
    yield made
    made.close()
