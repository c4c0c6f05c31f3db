"""Fixtures for all suites, and no judgement of how fast the machine is."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

pytest_plugins = [
    "tests.client_stub",
    "tests.cluster_fixture",
    "tests.databases",
    "tests.hdfs_clusters",
    "tests.postgres_server",
    "tests.s3_servers",
    "tests.worker_groups",
]

# By itself Hypothesis fails an example that takes 200 ms, and a test whose examples are slowly made.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")
