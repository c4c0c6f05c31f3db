"""Transactions on flavours. A job keeps a copy of the amounts, so a flavour may change or go while jobs use it."""

from __future__ import annotations

from paddleflow.base.names import nearest
from paddleflow.errors import Conflict, NotFound
from paddleflow.queues import rules
from paddleflow.queues.clusters import cluster_names, find_cluster
from paddleflow.queues.model import Flavour, amounts, columns
from paddleflow.spec.flavour import FlavourChange, NewFlavour
from paddleflow.store.counters import NAMED, bump
from paddleflow.store.database import Row, Tx
from paddleflow.store.statements import load

SQL = load("paddleflow.queues", "flavours.sql")


def find_flavour(tx: Tx, name: str) -> Flavour | None:
    row = tx.one(SQL["flavour_by_name"], name=name)
    return _flavour(row) if row else None


def get_flavour(tx: Tx, name: str) -> Flavour:
    """The flavour of this name, or `NotFound` that names the nearest."""
    flavour = find_flavour(tx, name)
    if flavour is None:
        hint = nearest(name, flavour_names(tx))
        raise NotFound(f"flavour[{name[:80]}] does not exist", code="FlavourNotFound", hint=hint)
    return flavour


def flavour_names(tx: Tx) -> list[str]:
    return [row["name"] for row in tx.all(SQL["flavour_names"])]


def list_flavours(tx: Tx, after: int, limit: int, *, part: str = "", cluster: str = "") -> list[Flavour]:
    """Those behind the position `after`, oldest first."""
    rows = tx.all(SQL["list_flavours"], after=after, limit=limit, part=part, cluster=cluster)
    return [_flavour(row) for row in rows]


def create_flavour(tx: Tx, document: NewFlavour, now: float) -> Flavour:
    cluster = find_cluster(tx, document.cluster_name or "")
    flavour = rules.new_flavour(document, cluster, cluster_names(tx), now)
    insert_flavour(tx, flavour)
    return flavour


def insert_flavour(tx: Tx, flavour: Flavour) -> None:
    made = tx.run(
        SQL["insert_flavour"],
        id=flavour.id,
        name=flavour.name,
        cluster=flavour.cluster,
        **columns("", flavour.each),
        created_at=flavour.created_at,
        updated_at=flavour.updated_at,
    )
    if not made:
        raise Conflict(
            f"flavour[{flavour.name}] exists already", code="DuplicatedName", hint="choose another name, or update it"
        )
    bump(tx, NAMED)


def change_flavour(tx: Tx, name: str, document: FlavourChange, now: float) -> Flavour:
    cluster = find_cluster(tx, document.cluster_name or "")
    changed = rules.changed_flavour(get_flavour(tx, name), document, cluster, cluster_names(tx), now)
    tx.run(
        SQL["update_flavour"],
        name=changed.name,
        cluster=changed.cluster,
        **columns("", changed.each),
        updated_at=changed.updated_at,
    )
    bump(tx, NAMED)
    return changed


def delete_flavour(tx: Tx, name: str) -> None:
    get_flavour(tx, name)
    tx.run(SQL["delete_flavour"], name=name)
    bump(tx, NAMED)


def _flavour(row: Row) -> Flavour:
    return Flavour(
        seq=row["seq"],
        id=row["id"],
        name=row["name"],
        cluster=row["cluster"],
        each=amounts(row),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )
