"""Fixtures for all suites."""

from __future__ import annotations

pytest_plugins = ["tests.postgres_server"]
