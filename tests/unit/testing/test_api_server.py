"""The patches of the in-memory API server. Its behaviour as a server: tests/contract/test_kube_client.py."""

from __future__ import annotations

from typing import Any

import pytest

from paddleflow.testing.api_server import PatchRefused, json_patch, merge_patch


def test_patches_that_do_not_fit_are_refused() -> None:
    target = {"a": [1, 2], "b/c": {"d": 1}}
    assert merge_patch(target, {"a": None, "e": {"f": None}}) == {"b/c": {"d": 1}, "e": {}}
    steps: list[dict[str, Any]] = [
        {"op": "add", "path": "/a/-", "value": 3},
        {"op": "add", "path": "/a/0", "value": 0},
        {"op": "replace", "path": "/a/1", "value": 9},
        {"op": "remove", "path": "/b~1c/d"},
    ]
    assert json_patch(target, steps) == {"a": [0, 9, 2, 3], "b/c": {}}
    assert target == {"a": [1, 2], "b/c": {"d": 1}}
    wrongs: list[dict[str, Any]] = [
        {"op": "replace", "path": "/x", "value": 1},
        {"op": "remove", "path": "/a/7"},
        {"op": "test", "path": "/b~1c/d", "value": 2},
        {"op": "move", "path": "/a"},
        {"op": "add", "path": "a"},
    ]
    for wrong in wrongs:
        with pytest.raises(PatchRefused):
            json_patch(target, [wrong])
