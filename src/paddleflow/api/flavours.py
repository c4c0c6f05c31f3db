"""Routes of flavours. Everybody sees them, only root makes and changes them."""

from __future__ import annotations

from paddleflow.api.amounts import scalars
from paddleflow.api.paging import page, page_fields
from paddleflow.api.platform import Platform
from paddleflow.api.routing import Call, NoBody, NoQuery, Route
from paddleflow.base.clock import local_text
from paddleflow.queues import flavours
from paddleflow.queues.model import Flavour
from paddleflow.spec import wire_queues as wire
from paddleflow.spec.flavour import FlavourChange, FlavourQuery, NewFlavour
from paddleflow.spec.wire import Name


async def create_flavour(platform: Platform, call: Call[NewFlavour, NoQuery]) -> Name:
    flavour = await platform.database.write(flavours.create_flavour, call.body, platform.clock.now())
    return {"name": flavour.name}


async def list_flavours(platform: Platform, call: Call[NoBody, FlavourQuery]) -> wire.FlavourList:
    query = call.query
    found = await platform.database.read(
        flavours.list_flavours, query.after, query.limit, part=query.name, cluster=query.cluster_name
    )
    rows, truncated, marker = page(found, query)
    shown = [flavour_answer(flavours.flavour_of(row)) for row in rows]
    return {**page_fields(query, truncated, marker), "flavourList": shown}


async def show_flavour(platform: Platform, call: Call[NoBody, NoQuery]) -> wire.Flavour:
    return flavour_answer(await platform.database.read(flavours.get_flavour, call.path["name"]))


async def change_flavour(platform: Platform, call: Call[FlavourChange, NoQuery]) -> wire.Flavour:
    name, now = call.path["name"], platform.clock.now()
    return flavour_answer(await platform.database.write(flavours.change_flavour, name, call.body, now))


async def delete_flavour(platform: Platform, call: Call[NoBody, NoQuery]) -> None:
    await platform.database.write(flavours.delete_flavour, call.path["name"])


def flavour_answer(flavour: Flavour) -> wire.Flavour:
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


_REFUSED = ("FlavourInvalidField", "400 ClusterNotFound")

ROUTES: tuple[Route, ...] = (
    Route(
        "POST",
        "/flavour",
        create_flavour,
        "Make a flavour",
        body=NewFlavour,
        answer=Name,
        root=True,
        errors=("DuplicatedName", *_REFUSED),
    ),
    Route("GET", "/flavour", list_flavours, "List flavours", query=FlavourQuery, answer=wire.FlavourList),
    Route(
        "GET",
        "/flavour/{name}",
        show_flavour,
        "Show a flavour",
        answer=wire.Flavour,
        errors=("FlavourNotFound",),
    ),
    Route(
        "PUT",
        "/flavour/{name}",
        change_flavour,
        "Change a flavour; jobs keep what they were submitted with",
        body=FlavourChange,
        answer=wire.Flavour,
        root=True,
        errors=("FlavourNotFound", *_REFUSED),
    ),
    Route(
        "DELETE",
        "/flavour/{name}",
        delete_flavour,
        "Delete a flavour; jobs keep what they were submitted with",
        root=True,
        errors=("FlavourNotFound",),
    ),
)
