"""The queue documents."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field

from paddleflow.base import names
from paddleflow.spec.document import Document
from paddleflow.spec.fields import MOST_ENTRIES, Amounts, Labels, Namespace, ShortText, named, one_of
from paddleflow.spec.query import PageQuery

QUOTA_TYPES = ("elasticQuota", "volcanoCapabilityQuota")
#: Names that schedulingPolicy may hold, each with its meaning.
POLICIES = {"priority": "higher priority first, then the older job"}
#: In which order jobs of one priority go, each with its meaning: the words of scheduling/rules.py, which are above this package.
ORDERS = {
    "fifo": "the older job first",
    "shortest": "the job first that is expected to run for the shortest time",
    "fair": "the user first who has had least lately",
    "drf": "the user first whose largest share of any resource is smallest now",
}
MOST_WEIGHT = 1_000_000
MOST_CLUSTERS = 16  #: beside the first


def _policies(values: list[str]) -> list[str]:
    unknown = [value for value in values if value.removesuffix("-") not in POLICIES]
    if unknown:
        raise ValueError(
            "; ".join(
                f"policy[{value[:40]}] is not registered, {names.nearest(value.removesuffix('-'), POLICIES)}"
                for value in unknown
            )
        )
    return values


Policies = Annotated[list[str], Field(max_length=MOST_ENTRIES), AfterValidator(_policies)]
Parent = Annotated[str, named(names.QUEUE), Field(description="the queue that it stands under; root: none")]
Weight = Annotated[int, Field(ge=1, le=MOST_WEIGHT, description="its part of what its siblings leave over")]
Order = Annotated[str, one_of("order", tuple(ORDERS)), Field(description=f"inside one priority: {', '.join(ORDERS)}")]
QuotaType = Annotated[str, one_of("quotaType", QUOTA_TYPES), Field(description=" or ".join(QUOTA_TYPES))]


OtherClusters = Annotated[
    list[ShortText],
    Field(
        max_length=MOST_CLUSTERS,
        description="clusters beside clusterName, in order of preference: a job that waits goes where it can start first",
    ),
]


class NewQueue(Document):
    """POST /queue"""

    code: ClassVar[str] = "QueueInvalidField"

    name: Annotated[str, named(names.QUEUE), Field(description=names.QUEUE.wanted)]
    namespace: Namespace
    cluster_name: ShortText = Field(default="", description="empty: default-cluster")
    other_clusters: OtherClusters = []
    quota_type: QuotaType = "elasticQuota"
    max_resources: Amounts = Field(description="the ceiling of all jobs of this queue together")
    min_resources: Amounts = Field(default_factory=Amounts, description="what the queue is guaranteed")
    location: Labels = Field(default={}, description="where the queue is, as a description")
    node_selector: Labels = Field(default={}, description="labels that a node must carry to take jobs of this queue")
    scheduling_policy: Policies = Field(default=[], description=f"of: {', '.join(POLICIES)}")
    parent: Parent = "root"
    weight: Weight = 1
    order: Order = "fifo"


class QueueChange(Document):
    """PUT /queue/{name}: what is left out stays as it is."""

    code: ClassVar[str] = "QueueInvalidField"

    max_resources: Amounts = Field(default_factory=Amounts)
    min_resources: Amounts = Field(default_factory=Amounts)
    location: Labels = Field(default={}, description="merged; a key with an empty value is taken away")
    node_selector: Labels = Field(default={}, description="merged; a key with an empty value is taken away")
    scheduling_policy: Policies = Field(default=[], description="added; a name that ends in - is taken away")
    parent: Parent | None = None
    weight: Weight | None = None
    order: Order | None = None
    other_clusters: OtherClusters | None = None
    status: Annotated[str, one_of("status", ("open", "closed"))] | None = Field(
        default=None, description="closed: takes no new jobs and starts none that wait; what runs goes on"
    )


class QueueQuery(PageQuery):
    """GET /queue"""

    name: str = Field(default="", description="only these queues, separated by commas")
    usage: bool = Field(default=False, description="with what the jobs of each queue hold now")
