"""What this process may do on a cluster, as the API server itself says (SelfSubjectAccessReview)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from paddleflow.base.values import dataclass
from paddleflow.kube.client import Client
from paddleflow.kube.resources import ACCESS_REVIEWS, Resource

AT_ONCE = 16  #: questions in flight


@dataclass(frozen=True, slots=True)
class Right:
    """To do `verb` with a kind; in one namespace, or in all of them when none is named."""

    verb: str
    resource: Resource
    namespace: str = ""
    subresource: str = ""

    def __str__(self) -> str:
        group = f".{self.resource.group}" if self.resource.group else ""
        part = f"/{self.subresource}" if self.subresource else ""
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource.plural}{group}{part}{where}"


def rights(verbs: str, resource: Resource, namespace: str = "", subresource: str = "") -> list[Right]:
    """One for each word of `verbs`."""
    return [Right(verb, resource, namespace, subresource) for verb in verbs.split()]


async def missing_rights(client: Client, wanted: Sequence[Right]) -> list[Right]:
    """Those that the client's user does not have."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def allowed(right: Right) -> bool:
        attributes = {
            "verb": right.verb,
            "group": right.resource.group,
            "resource": right.resource.plural,
            "subresource": right.subresource,
            "namespace": right.namespace,
        }
        question = {
            "apiVersion": ACCESS_REVIEWS.api_version,
            "kind": ACCESS_REVIEWS.kind,
            "metadata": {},
            "spec": {"resourceAttributes": attributes},
        }
        async with slots:
            answer = await client.create(ACCESS_REVIEWS, question)
        return bool((answer.get("status") or {}).get("allowed"))

    answers = await asyncio.gather(*(allowed(right) for right in wanted))
    return [right for right, answer in zip(wanted, answers, strict=True) if not answer]
