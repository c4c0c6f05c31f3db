"""Every route and websocket of the API: the one place where a new module of routes is named. `server` builds from it;
`application.build` adds those of health and metrics."""

from __future__ import annotations

from paddleflow.api import (
    artifacts,
    cluster_nodes,
    clusters,
    code,
    events,
    flavours,
    grants,
    job_exec,
    job_files,
    job_forecast,
    jobs,
    logs,
    pipelines,
    pools,
    queues,
    run_caches,
    run_logs,
    run_pictures,
    runs,
    scheduler,
    schedules,
    secrets,
    statistics,
    storage_caches,
    storage_files,
    storage_links,
    storage_mounts,
    storages,
    tokens,
    users,
    why,
)

ROUTE_GROUPS = (
    users.ROUTES, tokens.ROUTES, secrets.ROUTES, grants.ROUTES, clusters.ROUTES, cluster_nodes.ROUTES, queues.ROUTES, flavours.ROUTES,
    pools.ROUTES, storages.ROUTES, storage_caches.ROUTES, storage_links.ROUTES, storage_files.ROUTES, storage_mounts.ROUTES, pipelines.ROUTES, runs.ROUTES, run_pictures.ROUTES, run_logs.ROUTES, run_caches.ROUTES,
    artifacts.ROUTES, schedules.ROUTES, jobs.ROUTES, code.ROUTES, why.ROUTES, job_forecast.ROUTES, scheduler.ROUTES,
    logs.ROUTES, job_files.ROUTES, events.ROUTES, statistics.ROUTES,
)  # fmt: skip
SOCKETS = (*events.SOCKETS, *job_exec.SOCKETS)
