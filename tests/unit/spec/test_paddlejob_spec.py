"""The PaddleJob document and the definition made of it: what is refused, with which words, and that both agree."""

from __future__ import annotations

from typing import Any

import pytest

from paddleflow.errors import Invalid
from paddleflow.operator.paddlejob.job import read
from paddleflow.spec.paddlejob.crd import definition
from paddleflow.spec.paddlejob.model import read_spec
from tests.simulated_paddlejob import job, role


def walk(node: Any, path: str = "") -> Any:
    yield path, node
    if isinstance(node, dict):
        for key, value in node.items():
            yield from walk(value, f"{path}.{key}")
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from walk(value, f"{path}[{number}]")


def schema() -> dict[str, Any]:
    found: dict[str, Any] = definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def test_the_schema_is_structural() -> None:
    for path, node in walk(schema()):
        if isinstance(node, dict):
            assert "$ref" not in node, path
            assert not ("anyOf" in node and "type" not in node), path
            assert node.get("additionalProperties") is not False, path
            assert "title" not in node or path.endswith("properties"), path


def test_the_schema_knows_enums_minima_and_defaults() -> None:
    spec = schema()["properties"]["spec"]["properties"]
    assert spec["cleanPodPolicy"]["enum"] == ["Always", "Never", "OnFailure", "OnCompletion"]
    assert spec["cleanPodPolicy"]["default"] == "OnCompletion"
    assert spec["intranet"]["enum"] == ["PodIP", "Service", "Host"]
    assert spec["worker"]["properties"]["replicas"]["minimum"] == 1
    assert spec["worker"]["required"] == ["replicas", "template"]
    assert spec["backoffLimit"] == {
        "description": spec["backoffLimit"]["description"],
        "type": "integer",
        "format": "int32",
        "minimum": 0,
        "default": 6,
    }
    template = spec["worker"]["properties"]["template"]["properties"]["spec"]
    assert template["required"] == ["containers"]
    assert template["properties"]["containers"]["minItems"] == 1
    assert "x-kubernetes-preserve-unknown-fields" not in template
    container = template["properties"]["containers"]["items"]
    assert (container["required"], container["properties"]["image"]["minLength"]) == (["name", "image"], 1)
    assert container["properties"]["securityContext"] == {"x-kubernetes-preserve-unknown-fields": True}


def test_the_status_has_no_defaults() -> None:
    assert not [path for path, _ in walk(schema()["properties"]["status"]) if path.endswith(".default")]


def test_scale_columns_and_short_name() -> None:
    crd = definition()["spec"]
    version = crd["versions"][0]
    assert crd["names"]["shortNames"] == ["pdj"]
    assert version["subresources"]["scale"]["specReplicasPath"] == ".spec.worker.replicas"
    assert [column["name"] for column in version["additionalPrinterColumns"]][:3] == ["Status", "Mode", "Age"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, "at least one of ps, worker and heter"),
        ({"worker": role(0)}, "worker.replicas"),
        ({"worker": role(-1)}, "worker.replicas"),
        ({"worker": role(2), "cleanPodPolicy": "OnFailed"}, "cleanPodPolicy"),
        ({"worker": role(2), "intranet": "Nowhere"}, "intranet"),
        ({"ps": role(1), "elastic": 1}, "elastic without worker"),
        ({"worker": {"replicas": 1, "template": {"spec": {"containers": []}}}}, "containers"),
        ({"worker": role(2, restartPolicy="Always")}, "restartPolicy"),
        ({"worker": role(2) | {"requests": 3}}, "below requests"),
        ({"worker": role(2) | {"limits": 1}}, "above limits"),
        ({"worker": role(2), "schedulingPolicy": {"minAvailable": 3}}, "minAvailable 3"),
        ({"worker": role(2), "cleanPolicy": "Always"}, "cleanPolicy"),
        ({"worker": role(2), "withGloo": 3}, "withGloo"),
    ],
)
def test_wrong_documents_are_refused_with_the_field(spec: dict[str, Any], words: str) -> None:
    with pytest.raises(Invalid) as caught:
        read_spec(spec)
    assert words in caught.value.message


def test_all_faults_come_at_once() -> None:
    with pytest.raises(Invalid) as caught:
        read_spec({"worker": role(0), "intranet": "x", "backoffLimit": -1})
    assert {fault.where for fault in caught.value.details} == {"worker.replicas", "intranet", "backoffLimit"}


def test_a_name_too_long_for_its_children_is_a_fault() -> None:
    found = read(job({"worker": role(1)}, name="a" * 52))
    assert found.spec is None
    assert "52 characters" in found.fault


def test_what_a_pod_template_holds_is_kept() -> None:
    spec = read_spec({"worker": role(1, tolerations=[{"key": "a"}], nodeSelector={"disk": "ssd"})})
    assert spec.worker
    dumped = spec.worker.template.spec.model_dump(by_alias=True, exclude_unset=True)
    assert dumped["tolerations"] == [{"key": "a"}]
    assert dumped["nodeSelector"] == {"disk": "ssd"}


@pytest.mark.parametrize(
    ("spec", "mode"),
    [
        ({"ps": role(1), "worker": role(1)}, "PS"),
        ({"worker": role(2)}, "Collective"),
        ({"worker": role(1)}, "Single"),
    ],
)
def test_the_mode_follows_from_the_roles(spec: dict[str, Any], mode: str) -> None:
    assert read_spec(spec).mode == mode
