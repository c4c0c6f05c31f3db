"""The examples of the page about job documents are what the server takes, and what the JSON Schema allows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from paddleflow.spec.document import parse
from paddleflow.spec.job import DistributedJob, SingleJob

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
SCHEMA = json.loads((REFERENCE / "job-document.schema.json").read_text("utf-8"))
EXAMPLES = [
    yaml.safe_load(block)
    for block in re.findall(r"```yaml\n(.*?)```", (REFERENCE / "job-document.md").read_text("utf-8"), re.DOTALL)
]


def valid(document: object) -> bool:
    return jsonschema_rs.is_valid(SCHEMA, document)


@pytest.mark.parametrize("document", EXAMPLES)
def test_an_example_is_a_document(document: dict[str, Any]) -> None:
    assert valid(document)
    sent = {key: value for key, value in document.items() if key != "code"}  # the client sends a snapshot in its place
    parse(DistributedJob if "framework" in document else SingleJob, sent)


@pytest.mark.parametrize(
    "document", [{"command": 3}, {"comand": "x"}, {"framework": "mpi", "members": [{"replicas": 2}]}, {"after": [3]}]
)
def test_the_schema_refuses_what_is_wrong(document: dict[str, Any]) -> None:
    assert not valid(document)
