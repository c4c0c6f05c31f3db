"""A small world for admission: queues, flavours, storages and one node, all written out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from paddleflow.base.quantity import Resources
from paddleflow.errors import Fault, Invalid, PaddleFlowError
from paddleflow.jobs.admission import AdmissionContext, QueueFacts, StorageFacts, admit
from paddleflow.jobs.model import Member, NewJob
from paddleflow.spec.document import parse
from paddleflow.spec.job import DistributedJob, SingleJob

GPU = "nvidia.com/gpu"
QUEUES = {
    "default-queue": QueueFacts("default-queue", True, True, Resources.of(8000, 16 * 2**30, {GPU: 4000})),
    "small": QueueFacts("small", True, True, Resources.of(1000, 2**30)),
    "endless": QueueFacts("endless", True, True, None),
    "closed": QueueFacts("closed", False, True, None),
    "private": QueueFacts("private", True, False, None),
    "far": QueueFacts("far", True, True, None, "Kubernetes"),
}
FLAVOURS = {"flavour1": Resources.of(1000, 2**30), "flavour2": Resources.of(4000, 8 * 2**30, {GPU: 1000})}
STORAGES = {
    "team": StorageFacts("fs-alice-team", "team", "/data/team"),
    "more": StorageFacts("fs-alice-more", "more", "/m"),
}
NODE = Resources.of(4000, 8 * 2**30, {GPU: 2000})


def _storage(name: str) -> StorageFacts | None:
    if name == "twice":
        raise Invalid("fs[twice] was granted by several users", hint="say which: fs-a-twice, fs-b-twice")
    return STORAGES.get(name)


WORLD = AdmissionContext(
    user="alice",
    queue=QUEUES.get,
    flavour=FLAVOURS.get,
    storage=_storage,
    why_no_node=lambda cluster, amount: "" if amount.fits(NODE) else f"the largest node n1 has {NODE}",
    known_queues=lambda: list(QUEUES),
    known_flavours=lambda: list(FLAVOURS),
    known_storages=lambda: list(STORAGES),
)
WORKERS = {"role": "worker", "replicas": 2, "command": "python train.py"}


def single(context: AdmissionContext = WORLD, **fields: Any) -> NewJob:
    return admit(parse(SingleJob, {"command": "true", **fields}), context)


def gang(
    *members: Mapping[str, Any], framework: str = "paddle", context: AdmissionContext = WORLD, **fields: Any
) -> NewJob:
    document = {"framework": framework, "members": list(members or [WORKERS]), **fields}
    return admit(parse(DistributedJob, document), context)


def one(**fields: Any) -> Member:
    (member,) = single(**fields).members
    return member


def faults(caught: pytest.ExceptionInfo[PaddleFlowError]) -> dict[str, Fault]:
    return {fault.where: fault for fault in caught.value.details}
