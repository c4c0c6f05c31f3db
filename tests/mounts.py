"""Tests that mount: skipped where nothing can be mounted."""

from __future__ import annotations

import pytest

from scripts.lib.mounts import COMMAND, Mount, mounted, why_not

__all__ = ["COMMAND", "Mount", "mounted", "needs_fuse"]
needs_fuse = pytest.mark.skipif(bool(why_not()), reason=why_not() or "can mount")
