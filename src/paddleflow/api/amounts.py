"""Amounts as the answers of clusters, queues, flavours and pools spell them."""

from __future__ import annotations

from paddleflow.base.quantity import Resources
from paddleflow.spec import wire_queues as wire


def amounts(value: Resources) -> wire.Resources:
    """``{cpu, memory, scalarResources?}``; scalars only where there are any."""
    answer: wire.Resources = {"cpu": value.text("cpu"), "memory": value.text("memory")}
    if value.scalars:
        answer["scalarResources"] = scalars(value)
    return answer


def scalars(value: Resources) -> dict[str, str]:
    return {name: value.text(name) for name, _ in value.scalars}


def flat(value: Resources) -> dict[str, str]:
    """All dimensions side by side."""
    return {"cpu": value.text("cpu"), "memory": value.text("memory"), **scalars(value)}
