"""JSON for rows, events and the decision log."""

from __future__ import annotations

import json
from typing import Any

import pytest

from paddleflow.base.json_text import ascii_json_text, json_text


def test_text_is_compact_and_keeps_characters() -> None:
    assert json_text({"name": "作业", "sizes": [1, 2.5, None, True]}) == '{"name":"作业","sizes":[1,2.5,null,true]}'


def test_what_a_database_refuses_travels_escaped() -> None:
    text = ascii_json_text(["\x00", "\udcff"])
    assert text == r'["\u0000","\udcff"]'
    assert json.loads(text) == ["\x00", "\udcff"]


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(RecursionError):
        json_text(value)
