"""The cluster documents. A credential goes in and never comes out again."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from paddleflow.base import names
from paddleflow.spec.document import Document
from paddleflow.spec.fields import Namespace, ShortText, Text, named, one_of
from paddleflow.spec.query import PageQuery, Query

CLUSTER_TYPES = ("Kubernetes", "Local", "K3S")
STATUSES = ("online", "offline")
MOST_NAMESPACES = 1000

Status = Annotated[str, one_of("status", STATUSES)]
ClusterType = Annotated[str, one_of("clusterType", CLUSTER_TYPES), Field(description=" or ".join(CLUSTER_TYPES))]
#: A kubeconfig of a megabyte is not one.
Credential = Annotated[str, Field(max_length=2**20)]


class ClusterChange(Document):
    """PUT /cluster/{name}: what is left out stays as it is."""

    code: ClassVar[str] = "InvalidClusterProperties"

    description: Text | None = None
    endpoint: ShortText | None = None
    source: ShortText | None = None
    cluster_type: ClusterType | None = None
    version: ShortText | None = Field(default=None, description="needed for clusterType Kubernetes")
    status: Status | None = None
    credential: Credential | None = Field(default=None, description="kubeconfig in base64; kept, and never returned")
    setting: Text | None = Field(default=None, description="JSON text")
    namespace_list: Annotated[list[Namespace], Field(max_length=MOST_NAMESPACES)] | None = Field(
        default=None, description="namespaces that queues of this cluster may have; empty: all"
    )


class NewCluster(ClusterChange):
    """POST /cluster"""

    cluster_name: Annotated[str, named(names.CLUSTER), Field(description=names.CLUSTER.wanted)]
    cluster_type: ClusterType


class ClusterQuery(PageQuery):
    """GET /cluster"""

    cluster_names: str = Field(default="", description="only these clusters, separated by commas")
    cluster_status: Status | None = Field(default=None, description="online or offline; both when left out")


class ClusterNames(Query):
    """GET /cluster/resource"""

    cluster_names: str = Field(default="", description="only these clusters, separated by commas")


PageNo = Annotated[int, Field(ge=1, le=10**9)]
PageSize = Annotated[int, Field(ge=1, le=1000)]


class NodeQuery(Query):
    """GET /cluster/{name}/nodeInfos"""

    page_no: PageNo = 1
    page_size: PageSize = 100


class NodeSelection(Document):
    """POST /cluster/resource"""

    code: ClassVar[str] = "InvalidArguments"

    page_no: PageNo = 1
    page_size: PageSize = 1000
    cluster_names: list[str] = Field(default=[], description="only these clusters; empty: all")
    queue_name: str = Field(default="", description="only nodes that may take jobs of this queue")
    labels: str = Field(default="", description='only nodes with all of these labels: a=b,c=d or {"a": "b"}')
    node_status: str = Field(default="", description="schedulable or unschedulable; both when empty")
