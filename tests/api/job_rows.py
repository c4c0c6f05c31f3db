"""Rows of jobs, written straight into the tables, for tests of what looks at them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from paddleflow.store.database import Tx
from paddleflow.store.statements import parse

SQL = parse(
    "job_rows.py",
    """
-- name: add_job
-- A job with nothing but what queues and storages look at.
insert into jobs (id, name, user_name, queue, kind, framework, priority, status, message, members, member_sets, labels,
                  annotations, cpu, memory, scalars, placed, accepted_at, updated_at)
values (:id, '', 'root', :queue, 'single', 'standalone', 'NORMAL', :status, '', '[]', '[]', '{}',
        '{}', :cpu, :memory, :scalars, :placed, 0, 0)

-- name: use_storage
-- A job mounts a storage.
insert into job_storages (job_id, fs_id) values (:job_id, :fs_id)

-- name: end_jobs
-- All jobs have ended.
update jobs set status = 'succeeded', placed = 0
""",
)


def add_job(
    tx: Tx,
    id: str,
    queue: str,
    status: str,
    *,
    placed: bool = False,
    cpu: int = 1000,
    memory: int = 2**30,
    scalars: Mapping[str, int] | None = None,
    storage: str = "",
) -> None:
    text = json.dumps(dict(scalars or {}))
    tx.run(SQL["add_job"], id=id, queue=queue, status=status, cpu=cpu, memory=memory, scalars=text, placed=int(placed))
    if storage:
        tx.run(SQL["use_storage"], job_id=id, fs_id=storage)


def end_jobs(tx: Tx) -> None:
    tx.run(SQL["end_jobs"])
