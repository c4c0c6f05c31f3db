"""Keeps tests of one `xdist_group` on one worker.

pytest 9.2 holds the ids of tests in another attribute than the one that xdist 3.8 writes the group into, so that xdist by
itself ignores all groups without a word. What it would write is written here; with an xdist that can do it again, this
changes nothing and may go. Loaded as a plugin by ``tests/conftest.py``.
"""

from __future__ import annotations

import pytest


@pytest.hookimpl(trylast=True)  # after xdist had its chance
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not getattr(config.option, "loadgroup", False):
        return
    for item in items:
        groups = sorted({str(mark.args[0]) for mark in item.iter_markers("xdist_group")})
        suffix = f"@{'_'.join(groups)}"
        if groups and not item.nodeid.endswith(suffix):
            item._id = type(item._id).parse(item.nodeid + suffix)
