"""Taints of nodes and what jobs put up with, as words. Pure.

A taint is ``key:effect`` or ``key=value:effect``. What a job tolerates is written in the same way; ``*`` stands for any key, any value
or any effect.
"""

from __future__ import annotations

from collections.abc import Iterable


def untolerated(taints: Iterable[str], tolerates: Iterable[str]) -> list[str]:
    """The taints that keep a job away."""
    accepted = set(tolerates)
    return [taint for taint in taints if taint not in accepted and not any(_covers(each, taint) for each in accepted)]


def _covers(pattern: str, taint: str) -> bool:
    name, _, effect = pattern.rpartition(":")
    found, _, kind = taint.rpartition(":")
    if effect not in ("*", kind):
        return False
    if name == "*":
        return True
    return found.partition("=")[0] == name.removesuffix("=*") if name.endswith("=*") else found == name
