"""The cluster documents. A credential goes in and never comes out again."""

from __future__ import annotations

from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from paddleflow.base import names
from paddleflow.spec.document import Document
from paddleflow.spec.fields import Memory, Namespace, ShortText, Text, named, one_of
from paddleflow.spec.job import PRIORITIES
from paddleflow.spec.query import PageQuery, Query

CLUSTER_TYPES = ("Kubernetes", "Local", "K3S")
STATUSES = ("online", "offline")
SCHEDULERS = ("paddleflow", "volcano", "kube-scheduler")  #: that may place pods
STORAGES = ("mount", "copy")  #: ways in which storages come into pods
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


class ClusterSetting(Document):
    """`setting` of a cluster of type Kubernetes or K3S: what its pods have in common. Other keys are kept and mean nothing here."""

    code: ClassVar[str] = "InvalidClusterProperties"

    default_image: ShortText = Field(default="", description="image of jobs that name none")
    image_pull_secrets: Annotated[list[Namespace], Field(max_length=20)] = Field(
        default=[], description="secrets of the pods' namespace with which images are pulled"
    )
    service_account: Annotated[str, Field(max_length=253)] = Field(
        default="", description="of all pods; they are not given its token"
    )
    tolerations: Annotated[list[dict[str, str]], Field(max_length=50)] = Field(
        default=[], description="of all pods: taints of nodes on which jobs may run all the same"
    )
    run_as_user: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = Field(
        default=None, description="user number of all containers; left out: the image's own, which may not be root"
    )
    root_queues: Annotated[list[Annotated[str, Field(max_length=255)]], Field(max_length=1000)] = Field(
        default=[],
        description="queues whose containers run as the image's own user, root too, whatever runAsUser says; *: all queues",
    )
    priority_classes: dict[
        Annotated[str, one_of("priority", tuple(PRIORITIES))], Annotated[str, Field(max_length=253)]
    ] = Field(default={}, description="PriorityClass of the pods of jobs of each priority")
    ephemeral_storage: Memory = Field(
        default="", description="disk of its node that each pod may use, as requests and limits; left out: no limit"
    )
    storages: Annotated[str, one_of("storages", ("", *STORAGES))] = Field(
        default="",
        description="how storages that are no folders of the nodes come into pods: mount, by a privileged container beside the "
        "job's; or copy, artifacts of pipelines alone. Left out: not at all",
    )
    platform_image: ShortText = Field(
        default="",
        description="the platform's own image (deploy/Containerfile), of the containers beside jobs that bring storages and install requirements",
    )
    server_url: ShortText = Field(
        default="", description="this server as pods reach it, such as http://paddleflow.paddleflow:8999"
    )
    environments_folder: Annotated[str, Field(max_length=1024, pattern=r"^(/.*[^/])?$")] = Field(
        default="",
        description="folder of the nodes that keeps what was installed for requirements, a subfolder for each user, so that jobs with "
        "the same requirements and image install them once on a node. Left out: each pod installs its own",
    )
    lost_node_seconds: Annotated[int, Field(ge=0, le=86400)] = Field(
        default=60, description="how long pods of a node that does not answer are waited for"
    )
    image_grace_seconds: Annotated[float, Field(ge=1, le=86400)] = Field(
        default=120.0, description="how long a container may fail to start for its image, volumes or configuration"
    )
    scheduler: Annotated[str, one_of("scheduler", SCHEDULERS)] = Field(
        default="paddleflow",
        description="who places pods: paddleflow; or volcano, or kube-scheduler, which then decide on which node each one goes",
    )
    lease_namespace: Namespace = Field(
        default="default", description="namespace of the lease that keeps other PaddleFlow servers away"
    )

    @model_validator(mode="after")
    def _complete(self) -> ClusterSetting:
        server = urlsplit(self.server_url)
        if self.server_url and (server.scheme not in ("http", "https") or not server.hostname):
            raise ValueError(
                f"serverUrl[{self.server_url[:200]}] must be a URL such as http://paddleflow.paddleflow:8999"
            )
        for wanted, value in (("platformImage", self.platform_image), ("serverUrl", self.server_url)):
            if self.storages and not value:
                raise ValueError(f"storages[{self.storages}] needs {wanted} beside it")
        return self


class ClusterQuery(PageQuery):
    """GET /cluster"""

    cluster_names: str = Field(default="", description="only these clusters, separated by commas")
    cluster_status: Status | None = Field(default=None, description="online or offline; both when left out")


class ClusterNames(Query):
    """GET /cluster/resource"""

    cluster_names: str = Field(default="", description="only these clusters, separated by commas")


PageNo = Annotated[int, Field(ge=1, le=10**9)]
FirstPageNo = Annotated[
    int, Field(ge=0, le=10**9), AfterValidator(lambda number: number or 1)
]  #: the original client sends 0
PageSize = Annotated[int, Field(ge=1, le=1000)]


class NodeQuery(Query):
    """GET /cluster/{name}/nodeInfos"""

    page_no: PageNo = 1
    page_size: PageSize = 100


class NodeSelection(Document):
    """POST /cluster/resource"""

    code: ClassVar[str] = "InvalidArguments"

    page_no: FirstPageNo = 1
    page_size: PageSize = 1000
    cluster_names: list[str] = Field(default=[], description="only these clusters; empty: all")
    queue_name: str = Field(default="", description="only nodes that may take jobs of this queue")
    labels: str = Field(default="", description='only nodes with all of these labels: a=b,c=d or {"a": "b"}')
    node_status: str = Field(default="", description="schedulable or unschedulable; both when empty")
