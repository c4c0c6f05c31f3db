"""The definitions of the kinds that the operator looks after, for `paddleflow operator --crd`."""

from __future__ import annotations

from typing import Any

from paddleflow.spec.paddlejob import crd


def definitions() -> list[dict[str, Any]]:
    return [crd.definition()]
