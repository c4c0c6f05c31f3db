"""Routes of flavours. Everybody sees them, only root makes and changes them."""

from __future__ import annotations

from paddleflow.api.amounts import scalars
from paddleflow.api.records import RecordKind, record_routes
from paddleflow.api.routing import Route
from paddleflow.base.clock import local_text
from paddleflow.queues import flavours
from paddleflow.queues.model import Flavour
from paddleflow.spec import wire_queues as wire
from paddleflow.spec.flavour import FlavourChange, FlavourQuery, NewFlavour
from paddleflow.spec.wire import Name
from paddleflow.store.database import Tx


def flavour_view(flavour: Flavour) -> wire.Flavour:
    return {
        "id": flavour.id,
        "name": flavour.name,
        "cpu": flavour.each.text("cpu"),
        "mem": flavour.each.text("memory"),
        "scalarResources": scalars(flavour.each),
        "clusterName": flavour.cluster,
        "createTime": local_text(flavour.created_at),
        "updateTime": local_text(flavour.updated_at),
    }


def select(tx: Tx, query: FlavourQuery) -> list[Flavour]:
    return flavours.list_flavours(tx, query.after, query.limit, part=query.name, cluster=query.cluster_name)


_REFUSED = ("FlavourInvalidField", "400 ClusterNotFound")

ROUTES: tuple[Route, ...] = record_routes(
    RecordKind(
        name="flavour",
        path="/flavour",
        summaries={
            "create": "Make a flavour",
            "list": "List flavours",
            "show": "Show a flavour",
            "change": "Change a flavour; jobs keep what they were submitted with",
            "delete": "Delete a flavour; jobs keep what they were submitted with",
        },
        list_field="flavourList",
        new=NewFlavour,
        changes=FlavourChange,
        query=FlavourQuery,
        create=lambda tx, document, caller, now: flavours.create_flavour(tx, document, now),
        select=select,
        get=flavours.get_flavour,
        change=flavours.change_flavour,
        delete=flavours.delete_flavour,
        view=flavour_view,
        created_view=lambda flavour: {"name": flavour.name},
        created_answer=Name,
        answer=wire.Flavour,
        list_answer=wire.FlavourList,
        missing="FlavourNotFound",
        create_errors=("DuplicatedName", *_REFUSED),
        change_errors=_REFUSED,
        public=True,
    )
)
