"""Card time: how long jobs held how many accelerator cards. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from paddleflow.base.values import dataclass
from paddleflow.scheduling.model import MemberSet

Scalars = Mapping[str, int]  #: thousandths by resource


@dataclass(frozen=True, slots=True)
class CardUse:
    """How long one job held how many cards between two moments."""

    cards: float  #: at the most
    hours: float
    device: str


def scalars_of(member_sets: Iterable[MemberSet]) -> Scalars:
    """What all members of a job take together."""
    found: dict[str, int] = {}
    for each in member_sets:
        for name, amount in each.each.scalars:
            found[name] = found.get(name, 0) + each.count * amount
    return found


def card_use(
    held: Sequence[tuple[float, Scalars]], started_at: float, finished_at: float | None, since: float, until: float
) -> CardUse:
    """Of a job that held this from these moments on; hours are floored to two decimals.

    Cards are ``nvidia.com/gpu`` and every ``…_cgpu``.
    """
    names = [name for _, scalars in held for name in scalars if name == "nvidia.com/gpu" or name.endswith("_cgpu")]
    cards = [sum(scalars.get(name, 0) for name in dict.fromkeys(names)) / 1000 for _, scalars in held]
    end = min(finished_at if finished_at is not None else until, until)
    moments = [*[max(at, started_at, since) for at, _ in held], end]
    spent = [count * max(0.0, min(to, end) - at) for count, (at, to) in zip(cards, pairwise(moments), strict=True)]
    return CardUse(max(cards, default=0.0), math.floor(sum(spent) / 36) / 100, names[0] if names else "")
