"""Card time: how long jobs held how many accelerator cards. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paddleflow.scheduling.model import Need


@dataclass(frozen=True, slots=True)
class CardUse:
    """How long one job held how many cards between two moments."""

    cards: float
    hours: float
    device: str


def card_use(
    needs: Sequence[Need], started_at: float, finished_at: float | None, since: float, until: float
) -> CardUse:
    """Cards are ``nvidia.com/gpu`` and every ``…_cgpu``, times replicas; hours are floored to two decimals."""
    cards, device = 0.0, ""
    for need in needs:
        for name, amount in need.each.scalars:
            if name == "nvidia.com/gpu" or name.endswith("_cgpu"):
                cards += need.count * amount / 1000
                device = device or name
    seconds = max(min(finished_at if finished_at is not None else until, until) - max(started_at, since), 0.0)
    return CardUse(cards, math.floor(cards * seconds / 36) / 100, device)
