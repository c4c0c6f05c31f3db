"""How fast a training application runs and learns, interpolated from measurements.

An `Application` holds three tables: step times per placement and batch size, step times for larger clusters, and
validation curves per batch size with their gradient statistics. From them come the seconds that a step takes, how much
a step is worth (its statistical efficiency) and when the training is done. Pure; `traces` reads the tables from files.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from paddleflow.base.values import dataclass

Times = tuple[float, float]  #: seconds of a step, and those of them that synchronise
Curve = Sequence[tuple[int, Times]]  #: by batch size of one GPU, ascending
_NEARLY = 1e-8


@dataclass(frozen=True, slots=True)
class Epoch:
    """One row of a validation curve."""

    progress: float
    iteration: float
    noise_square: float  #: of the gradient
    noise_variance: float


@dataclass(frozen=True, slots=True)
class Batch:
    """How a batch is cut: so much per GPU and pass, and so many passes before the last one of a step."""

    atomic: int
    extra_passes: int

    def size(self, gpus: int) -> int:
        return gpus * self.atomic * (self.extra_passes + 1)


class Application:
    """One model with its measurements. Answers are remembered: a simulation asks the same things again and again."""

    def __init__(
        self,
        name: str,
        placements: Mapping[tuple[int, ...], Curve],
        larger: Mapping[tuple[int, int], Curve],
        validation: Mapping[int, Sequence[Epoch]],
        epochs: int | None = None,
        largest_local: int | None = None,
        scalable: bool = True,
    ) -> None:
        self.name = name
        self.scalable = scalable  #: whether it can use more than one GPU
        self._placements = placements
        self._validation = dict(sorted(validation.items()))
        self._sizes = list(self._validation)
        locals_ = [local for curve in placements.values() for local, _ in curve]
        self.smallest_batch, self.largest_batch = self._sizes[0], self._sizes[-1]
        self.smallest_local, self.largest_local = min(locals_), largest_local or max(locals_)
        self.epochs = epochs or min(len(rows) for rows in validation.values())
        self._planes = _planes(placements, larger)
        self.times: Callable[[tuple[int, ...], int], Times] = lru_cache(maxsize=None)(self._times)
        self.gain: Callable[[int, int], float] = lru_cache(maxsize=None)(self._gain)
        self.best_batch: Callable[[int, int, int], tuple[Batch, float]] = lru_cache(maxsize=None)(self._best_batch)
        self.progress_after = [0.0] + [
            min(rows[epoch].progress for rows in validation.values()) for epoch in range(self.epochs)
        ]

    def fixed_batch(self, size: int, gpus: int) -> Batch:
        """The batch that its owner asked for, cut for so many GPUs."""
        local = math.ceil(size / gpus - _NEARLY)
        extra = math.ceil(local / self.largest_local - _NEARLY) - 1
        if gpus == 1 and size > self.smallest_batch:  # gradient statistics need two passes at least
            extra = max(1, extra)
        atomic = math.ceil(local / (extra + 1) - _NEARLY)
        return Batch(min(atomic, self.largest_batch // (gpus * (extra + 1))), extra)

    def step_time(self, placement: tuple[int, ...], batch: Batch) -> float:
        step, sync = self.times(placement, batch.atomic)
        return step + (step - sync) * batch.extra_passes

    def iteration(self, batch_size: int, epoch: int) -> float:
        """Steps done once this epoch (from 0) is over."""
        return self._between(batch_size, lambda rows: rows[epoch].iteration)

    def _gain(self, batch_size: int, epoch: int) -> float:
        """Steps of the smallest batch that one step of this batch is worth."""
        square = self._between(batch_size, lambda rows: rows[epoch].noise_square)
        variance = self._between(batch_size, lambda rows: rows[epoch].noise_variance)
        return (variance + square) / (variance * self.smallest_batch / batch_size + square)

    def _between(self, batch_size: int, value: Callable[[Sequence[Epoch]], float]) -> float:
        low = self._sizes[max(0, bisect_right(self._sizes, batch_size) - 1)]
        high = self._sizes[min(len(self._sizes) - 1, bisect_left(self._sizes, batch_size))]
        first = value(self._validation[low])
        if low == high:
            return first
        share = (batch_size - low) / (high - low)
        return first + share * (value(self._validation[high]) - first)

    def _times(self, placement: tuple[int, ...], local: int) -> Times:
        ring = min(placement[i:] + placement[:i] for i in range(len(placement)))
        curve = self._placements.get(ring)
        if curve is not None:
            return _along(curve, local)
        return self._spread_times(min(len(placement), 16), sum(placement), local)

    def _spread_times(self, nodes: int, gpus: int, local: int) -> Times:
        """Between measured numbers of nodes at the same GPUs per node, between measured numbers of GPUs there."""
        known = sorted(self._planes)
        low = known[max(0, bisect_right(known, nodes) - 1)]
        high = known[min(len(known) - 1, bisect_left(known, nodes))]
        first = _on_plane(self._planes[low], gpus * low / nodes, local)
        if low == high:
            return first
        return _mix(first, _on_plane(self._planes[high], gpus * high / nodes, local), (nodes - low) / (high - low))

    def _best_batch(self, nodes: int, gpus: int, epoch: int) -> tuple[Batch, float]:
        """The batch with most progress a second on an even spread, and that progress."""
        placement = even(nodes, gpus)
        lowest = max(self.smallest_batch, self.smallest_local * gpus)
        best, most, steps = Batch(0, 0), 0.0, 24
        for turn in range(steps + 1):
            size = lowest * (self.largest_batch / lowest) ** (turn / steps)
            batch = self.fixed_batch(round(size), gpus)
            if not self.smallest_local <= batch.atomic <= self.largest_local:
                continue
            total = batch.size(gpus)
            if total < self.smallest_batch:
                continue
            rate = self.gain(total, epoch) / self.step_time(placement, batch)
            if rate > most:
                best, most = batch, rate
        return best, most


def packed(gpus: int, per_node: int = 4) -> tuple[int, ...]:
    """As few nodes as possible."""
    full, rest = divmod(gpus, per_node)
    return (per_node,) * full + ((rest,) if rest else ())


def even(nodes: int, gpus: int) -> tuple[int, ...]:
    """As evenly as possible, the smaller parts first."""
    each, rest = divmod(gpus, nodes)
    return (each,) * (nodes - rest) + (each + 1,) * rest


def _planes(
    placements: Mapping[tuple[int, ...], Curve], larger: Mapping[tuple[int, int], Curve]
) -> dict[int, list[tuple[int, Curve]]]:
    """By number of nodes, then GPUs: the mean curve of all placements measured there."""
    gathered: dict[tuple[int, int], dict[int, list[Times]]] = {}
    for placement, curve in placements.items():
        for local, times in curve:
            gathered.setdefault((len(placement), sum(placement)), {}).setdefault(local, []).append(times)
    means: dict[tuple[int, int], Curve] = {
        key: [(local, _mean(rows)) for local, rows in sorted(by_local.items())] for key, by_local in gathered.items()
    }
    planes: dict[int, list[tuple[int, Curve]]] = {}
    for (nodes, gpus), curve in sorted({**means, **larger}.items()):
        planes.setdefault(nodes, []).append((gpus, curve))
    return planes


def _mean(rows: Sequence[Times]) -> Times:
    return sum(row[0] for row in rows) / len(rows), sum(row[1] for row in rows) / len(rows)


def _on_plane(plane: Sequence[tuple[int, Curve]], gpus: float, local: int) -> Times:
    at = min(max(bisect_left(plane, gpus, key=_first), 1), len(plane) - 1) if len(plane) > 1 else 0
    (high, high_curve), (low, low_curve) = plane[at], plane[at - 1]
    if at == 0 or gpus == high:
        return _along(high_curve, local)
    return _mix(_along(low_curve, local), _along(high_curve, local), (gpus - low) / (high - low))


def _first(row: tuple[int, Curve]) -> int:
    return row[0]


def _along(curve: Curve, local: int) -> Times:
    """Straight between the measured batch sizes, and straight on beyond them."""
    if len(curve) == 1:
        return curve[0][1]
    at = min(max(bisect_left(curve, local, key=_local), 1), len(curve) - 1)
    (low, first), (high, second) = curve[at - 1], curve[at]
    return _mix(first, second, (local - low) / (high - low))


def _local(row: tuple[int, Times]) -> int:
    return row[0]


def _mix(first: Times, second: Times, share: float) -> Times:
    return first[0] + share * (second[0] - first[0]), first[1] + share * (second[1] - first[1])
