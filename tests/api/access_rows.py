"""Rows that tests of access put into tables of other packages."""

from __future__ import annotations

from paddleflow.access import grants
from paddleflow.store.database import Database, Tx, Value
from paddleflow.store.statements import compose


def insert(tx: Tx, table: str, values: dict[str, Value]) -> None:
    columns = ", ".join(values)
    marks = ", ".join(f":{name}" for name in values)
    tx.run(compose(f"insert into {table} ({columns}) values ({marks})"), **values)


async def add_queue(database: Database, name: str) -> None:
    texts = dict.fromkeys(("namespace", "cluster", "quota_type", "location", "policies", "status"), "x")
    amounts = dict.fromkeys(("max_cpu", "max_memory", "min_cpu", "min_memory", "created_at", "updated_at"), 1)
    scalars = {"max_scalars": "{}", "min_scalars": "{}"}
    await database.write(insert, "queues", {"id": f"queue-{name}", "name": name, **texts, **amounts, **scalars})


async def add_storage(database: Database, user: str, name: str) -> str:
    texts = {"fs_type": "local", "server_address": "", "sub_path": "/tmp", "properties": "{}"}
    numbers = dict.fromkeys(("independent", "confined", "created_at", "updated_at"), 0)
    identity = f"fs-{user}-{name}"
    values: dict[str, Value] = {"id": identity, "name": name, "user_name": user, **texts, **numbers}
    await database.write(insert, "filesystems", values)
    return identity


async def granted(database: Database, user: str, kind: str) -> list[str]:
    """Ids of the resources of one type that a user has been granted."""
    found = await database.read(grants.list_grants, user, 0, 1000)
    return [grant.resource_id for grant in found if grant.resource_type == kind]
