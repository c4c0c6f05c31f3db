"""What launching needs to know of this machine, and the scheduler of this server's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paddleflow.scheduling.rules import Rules
from paddleflow.settings import SchedulingSettings


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """What launching needs to know of this machine."""

    data: Path
    base_env: Mapping[str, str]
    addresses: Mapping[str, str]  #: node → address
    restart_limit: int


def rules_of(settings: SchedulingSettings) -> Rules:
    """The scheduler's rules as this server has them. A job is never ended or changed in the turn that started it."""
    return Rules(
        preemption=settings.preemption,
        elastic=settings.elastic,
        patience=settings.patience,
        half_life=max(1.0, settings.half_life),
        least_run=max(1.0, settings.least_run),
        window=settings.eviction_window,
        resize_pause=max(1.0, settings.resize_pause),
        restart_pause=max(1.0, settings.restart_pause),
    )
