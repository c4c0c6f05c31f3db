"""Random pods and nodes: no placement that the documented rules forbid, and no pod left waiting that a node would take."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from paddleflow.podscheduler.board import Board
from paddleflow.podscheduler.nodes import read_node
from paddleflow.podscheduler.pods import PodReader
from paddleflow.scheduling.rules import Rules
from tests import pod_strategies
from tests.pod_placement_reference import World


def completed(pod: dict[str, Any], *, ours: bool) -> dict[str, Any]:
    """What the API server adds."""
    made = copy.deepcopy(pod)
    made["metadata"]["uid"] = f"uid-{pod['metadata']['name']}"
    made["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    made["spec"]["schedulerName"] = "paddleflow" if ours else "somebody"
    return made


@settings(max_examples=60, deadline=None)
@given(
    nodes=pod_strategies.nodes(),
    pods=pod_strategies.pod_lists(),
    foreign=pod_strategies.pod_lists(most=3),
    batch=st.integers(1, 8),
    data=st.data(),
)
def test_places_where_the_rules_allow_it_and_nowhere_else(
    nodes: list[dict[str, Any]],
    pods: list[dict[str, Any]],
    foreign: list[dict[str, Any]],
    batch: int,
    data: st.DataObject,
) -> None:
    board, reader = Board(Rules(patience=float("inf"))), PodReader()
    world = World(nodes, pod_strategies.NAMESPACES)
    for name, labels in pod_strategies.NAMESPACES.items():
        board.put_namespace(name, labels)
    for node in nodes:
        board.put_node(node["metadata"]["name"], read_node(node))
    for number, pod in enumerate(foreign):
        pod["metadata"]["name"] = f"f{number}"
        allowed = sorted(world.allowed(pod))
        if allowed:
            name = data.draw(st.sampled_from(allowed))
            made = completed(pod, ours=False)
            made["spec"]["nodeName"] = name
            world.place(pod, name)
            board.put_pod(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}", reader.read(made))
    waiting = {pod["metadata"]["name"]: pod for pod in pods}
    now = 1_800_000_000.0
    for begin in range(0, len(pods), batch):
        for pod in pods[begin : begin + batch]:
            read = reader.read(completed(pod, ours=True))
            board.put_pod(read.key, read)
        while True:
            now += 1
            changes = board.decide(now, limit=data.draw(st.integers(1, 4)))
            for bound, name in changes.binds:
                original = waiting.pop(bound.name)
                assert world.refusal(original, name) == "", f"{bound.name} on {name}"
                world.place(original, name)
                made = completed(original, ours=True)
                made["spec"]["nodeName"] = name
                if data.draw(st.booleans()):  # the watch brings it, now or after the next decision
                    board.put_pod(bound.key, reader.read(made))
            if not changes.binds:
                break
    arrived = {pod["metadata"]["name"] for pod in pods}
    assert {name: world.allowed(pod) for name, pod in waiting.items() if name in arrived and world.allowed(pod)} == {}
    assert board.waiting == len(waiting)
