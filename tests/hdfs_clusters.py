"""HDFS for tests: one plain mini cluster for the whole session of a worker, kept while anybody may still ask for it.

Tests that use it carry ``pytest.mark.xdist_group("hdfs")``, so that one worker has it. Where it cannot be had they skip, with one
line that says how to install it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count

import pytest

from scripts.lib.hdfs import MiniCluster, mini_cluster
from scripts.lib.s3_servers import NotInstalled

_numbers = count(1)


def fresh_folder() -> str:
    """Directly below the root, where everybody may make one: a folder in between would belong to the first who asks."""
    return f"folder-{next(_numbers)}"


@pytest.fixture(scope="session")
def hdfs_cluster() -> Iterator[MiniCluster]:
    with ExitStack() as stack:
        try:
            made = stack.enter_context(mini_cluster())
        except NotInstalled as error:
            pytest.skip(str(error))
        yield made
