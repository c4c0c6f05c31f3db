"""What pod templates of a job say of nodes, as the scheduler knows it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from paddleflow.base.quantity import Resources
from paddleflow.jobs.node_rules import ANY_NODE, NodeRules, common_rules, read_rules, rules_of_template
from paddleflow.jobs.rows import WaitingClass, needs_text, requests_of
from paddleflow.scheduling.core import decide as decide_all
from paddleflow.scheduling.model import Node, Queue, Snapshot, Start, Wait
from paddleflow.scheduling.taints import untolerated
from tests.admission_world import QUEUES, WORLD, gang, single

NOW = 1_800_000_000.0
SMALL, BIG = Resources.of(1000, 2**30, {}), Resources.of(8000, 2**34, {})
NODES = (
    Node("plain", BIG, {"zone": "a"}),
    Node("fast", BIG, {"zone": "a", "gpu": "h100", "slots": "8"}),
    Node("kept", BIG, {"zone": "b", "gpu": "a100", "slots": "4"}, taints=("team=vision:NoSchedule",)),
)


def pod(**spec: Any) -> dict[str, Any]:
    return {"kind": "Pod", "spec": {"containers": [{"name": "c"}], **spec}}


def required(*expressions: tuple[str, str, list[str]]) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": k, "operator": o, "values": v} for k, o, v in expressions]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def decide(*rules: NodeRules) -> str:
    """The node of a job whose members have these rules, or why it waits."""
    text = needs_text(tuple((f"r{number}", 1, SMALL, None, False, each) for number, each in enumerate(rules)))
    waiting = WaitingClass(
        "q", "ada", "standalone", "NORMAL", text, 1, 0.0, False, 0, "pending", "", [(1, "job-1", NOW)], None, ()
    )
    (request,) = requests_of(waiting)
    (decision,) = decide_all(Snapshot(NOW, NODES, (Queue("q", None),), (request,), ()))
    if isinstance(decision, Start):
        return ",".join(sorted({each.node for each in decision.assignments}))
    assert isinstance(decision, Wait)
    return decision.reason.text


def test_a_node_selector_of_a_template_chooses_the_node() -> None:
    assert decide(rules_of_template(pod(nodeSelector={"gpu": "h100"}))) == "fast"
    assert "no node carries gpu=b200" in decide(rules_of_template(pod(nodeSelector={"gpu": "b200"})))


def test_a_toleration_of_a_template_opens_tainted_nodes() -> None:
    selector = {"gpu": "a100"}
    assert "have taints that the job does not tolerate" in decide(rules_of_template(pod(nodeSelector=selector)))
    for each in (
        {"key": "team", "operator": "Exists"},
        {"key": "team", "value": "vision", "effect": "NoSchedule"},
        {"operator": "Exists"},
    ):
        assert decide(rules_of_template(pod(nodeSelector=selector, tolerations=[each]))) == "kept"
    other = {"key": "team", "value": "speech", "effect": "NoSchedule"}
    assert "have taints" in decide(rules_of_template(pod(nodeSelector=selector, tolerations=[other])))


def test_a_required_affinity_of_a_template_is_kept() -> None:
    assert decide(rules_of_template(pod(affinity=required(("slots", "Gt", ["5"]))))) == "fast"
    away = required(("gpu", "DoesNotExist", []))
    assert decide(rules_of_template(pod(affinity=away))) == "plain"
    tainted = required(("gpu", "In", ["a100"]))
    assert "none of the 3 nodes suits the node affinity" in decide(rules_of_template(pod(affinity=tainted)))
    assert decide(rules_of_template(pod(affinity=tainted, tolerations=[{"operator": "Exists"}]))) == "kept"


def test_of_members_that_differ_what_all_say_is_known() -> None:
    one = rules_of_template(pod(nodeSelector={"zone": "a", "gpu": "h100"}, affinity=required(("x", "Exists", []))))
    other = rules_of_template(pod(nodeSelector={"zone": "a"}))
    assert common_rules([one, other]) == NodeRules((("zone", "a"),))
    assert common_rules([one, one]) == one
    assert common_rules([one, ANY_NODE]) == ANY_NODE


def test_what_templates_ask_of_other_pods_is_kept_with_labels_and_namespace() -> None:
    soft = {"weight": 1, "preference": {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}}
    wishes = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [soft]}}
    spread = [{"topologyKey": "zone", "maxSkew": 1}]
    world = replace(WORLD, queue=lambda name: replace(QUEUES["far"], namespace="team"))
    members = [{"role": role, "replicas": 1, "command": "x"} for role in ("worker", "pserver")]
    job = gang(*members, context=world, extensionTemplate=pod(affinity=wishes), labels={"app": "train"})
    texts = {member.role: json.loads(member.nodes.near) for member in job.members}
    assert texts["worker"]["namespace"] == "team"
    assert texts["worker"]["spec"] == {"affinity": wishes}
    assert texts["pserver"]["labels"]["app"] == "train"
    assert texts["pserver"]["labels"]["paddleflow/role"] == "pserver"
    (one,) = single(world, command="x", extensionTemplate=pod(topologySpreadConstraints=spread)).members
    assert read_rules(one.nodes.json()) == one.nodes
    assert json.loads(one.nodes.near)["spec"] == {"topologySpreadConstraints": spread}
    for template in (pod(nodeSelector={"a": "b"}), pod(affinity=required(("gpu", "Exists", []))), None):
        (plain,) = single(world, command="x", extensionTemplate=template or {}, labels={"app": "train"}).members
        assert json.loads(plain.nodes.near)["labels"]["app"] == "train", "pods of others may keep away from it"
    (local,) = single(command="x", labels={"app": "train"}).members
    assert local.nodes.near == "", "nobody's neighbour"


@pytest.mark.parametrize(
    "spread",
    [{"topologyKey": ["zone"]}, {"topologyKey": "z", "maxSkew": "1"}, {"topologyKey": "z", "matchLabelKeys": "x"}, "x", 7,
     {"topologyKey": "z", "labelSelector": {"matchLabels": {"a": 1}}},
     {"topologyKey": "z", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": [["x"]]}]}}],
)  # fmt: skip
def test_what_has_other_types_than_the_api_s_is_not_kept(spread: Any) -> None:
    world = replace(WORLD, queue=lambda name: QUEUES["far"])
    (member,) = single(world, command="x", extensionTemplate=pod(topologySpreadConstraints=[spread])).members
    assert json.loads(member.nodes.near)["spec"] == {}


def test_rules_are_read_as_they_were_written() -> None:
    found = rules_of_template(
        pod(
            nodeSelector={"b": "2", "a": "1"},
            tolerations=[{"key": "k", "operator": "Exists", "effect": "NoExecute"}],
            affinity=required(("gpu", "In", ["h100", "a100"]), ("zone", "Exists", [])),
        )
    )
    assert read_rules(found.json()) == found
    assert found != ANY_NODE


@pytest.mark.parametrize(
    "template",
    [
        None,
        {},
        {"spec": 1},
        pod(nodeSelector=[1]),
        pod(affinity="x"),
        pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": 1}}),
        pod(tolerations=3),
        {"kind": "PyTorchJob", "spec": {"nodeSelector": {"a": "b"}}},
    ],
)
def test_what_cannot_be_read_is_left_to_the_api_server(template: Any) -> None:
    assert rules_of_template(template) == ANY_NODE


def test_a_star_stands_for_anything() -> None:
    taints = ("a:NoSchedule", "a=1:NoExecute", "b=2:NoSchedule")
    assert untolerated(taints, ()) == list(taints)
    assert untolerated(taints, ("a=*:*",)) == ["b=2:NoSchedule"]
    assert untolerated(taints, ("*:NoSchedule",)) == ["a=1:NoExecute"]
    assert untolerated(taints, ("*:*",)) == []
    assert untolerated(taints, ("a:NoSchedule", "b=2:*")) == ["a=1:NoExecute"]


def test_cordoned_nodes_and_none_at_all_have_words_of_their_own() -> None:
    (request,) = requests_of(
        WaitingClass(
            "q", "ada", "standalone", "NORMAL", needs_text((("r", 1, SMALL, None, False, ANY_NODE),)), 1, 0.0, False, 0,
            "pending", "", [(1, "job-1", NOW)], None, (),
        )
    )  # fmt: skip
    for nodes, words in (
        ((replace(NODES[0], schedulable=False),), "all 1 nodes are cordoned or not ready"),
        ((), "there is no node"),
    ):
        (decision,) = decide_all(Snapshot(NOW, nodes, (Queue("q", None),), (request,), ()))
        assert isinstance(decision, Wait)
        assert decision.reason.text == words
