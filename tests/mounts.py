"""Tests that mount: skipped where nothing can be mounted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from paddleflow.objects.s3 import Bucket
from scripts.lib.mounts import COMMAND, Mount, mounted, why_not
from scripts.lib.s3_servers import KEYS

__all__ = ["COMMAND", "Mount", "access", "mounted", "mounted_bucket", "needs_fuse"]
needs_fuse = pytest.mark.skipif(bool(why_not()), reason=why_not() or "can mount")


def access(bucket: Bucket) -> tuple[str, ...]:
    """Options by which a command may read and write a bucket."""
    return ("--endpoint", bucket.endpoint, "--access-key", KEYS.access_key, "--secret-key", KEYS.secret_key)


@contextmanager
def mounted_bucket(bucket: Bucket, cache: Path, *options: str) -> Iterator[Mount]:
    """A bucket mounted with its cache in this folder."""
    words = (*access(bucket), "--cache-dir", str(cache), *options)
    with mounted(f"s3://{bucket.name}/{bucket.prefix}", *words) as made:
        made.options = words
        yield made
