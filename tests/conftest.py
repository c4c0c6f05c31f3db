"""Fixtures for all suites."""

from __future__ import annotations

pytest_plugins = ["tests.cluster_fixture", "tests.postgres_server", "tests.worker_groups"]
