"""The server serves every route there is."""

from __future__ import annotations

import importlib
import pkgutil

import paddleflow.api
from paddleflow.api import health, metrics
from paddleflow.api.routes import ROUTE_GROUPS


def test_every_route_module_is_served() -> None:
    served = {id(group) for group in (*ROUTE_GROUPS, health.ROUTES, metrics.ROUTES)}
    missing = []
    for module in pkgutil.iter_modules(paddleflow.api.__path__):
        routes = getattr(importlib.import_module(f"paddleflow.api.{module.name}"), "ROUTES", None)
        if routes is not None and id(routes) not in served:
            missing.append(module.name)
    assert missing == []
