"""Which kinds there are, where they live on the API server, and the parts of an object that everybody asks for.

An object is the JSON that the API server sends, as a dictionary: nothing is lost that this code does not know of, and a
reconcile function compares and builds what people write in manifests. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from paddleflow.base.values import dataclass

Object: TypeAlias = dict[str, Any]  #: as it came from the API server, or is about to go there
View: TypeAlias = Mapping[str, Any]  #: an object that is only read


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind: what its objects are called and the path of their collection. `group` is empty for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """The path of the group and version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Of the collection, of one object, or of its subresource; without a namespace the collection of all of them."""
        parts = [self.root]
        if self.namespaced and namespace:
            parts.append(f"namespaces/{namespace}")
        parts.append(self.plural)
        if name:
            if self.namespaced and not namespace:
                raise ValueError(f"{self.kind} {name}: a namespace is needed to address it")
            parts.append(name)
            if subresource:
                parts.append(subresource)
        return "/".join(parts)

    def object(self, name: str, namespace: str = "", **fields: Any) -> Object:
        """The beginning of a manifest of this kind; `fields` are its further parts (spec, data …)."""
        metadata: Object = {"name": name}
        if self.namespaced and namespace:
            metadata["namespace"] = namespace
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata, **fields}


NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS = Resource("", "v1", "pods", "Pod")
SERVICES = Resource("", "v1", "services", "Service")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS = Resource("", "v1", "secrets", "Secret")
EVENTS = Resource("", "v1", "events", "Event")
LEASES = Resource("coordination.k8s.io", "v1", "leases", "Lease")
DEFINITIONS = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
QUEUES = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
ACCESS_REVIEWS = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)
PODGROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
PADDLEJOBS = Resource("batch.paddlepaddle.org", "v1", "paddlejobs", "PaddleJob")


_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_PATH = re.compile(r"/(?:api|apis/[^/]+)/[^/]+/(?:namespaces/(?P<namespace>[^/]+)/)?(?P<what>.+)")


def request_words(method: str, path: str) -> str:
    """A request in the words of RBAC, for messages: ``create pods in namespace[team]``. Paths of no object stay as they are."""
    path, _, query = path.partition("?")
    found = _PATH.fullmatch(path)
    if found is None:
        return f"{method} {path}"
    namespace, what = found["namespace"], found["what"]
    verb = _VERBS.get(method, method)
    if method == "GET" and "/" not in what:
        verb = "watch" if "watch=" in query else "list"
    return f"{verb} {what}" + (f" in namespace[{namespace}]" if namespace else "")


def name(obj: View) -> str:
    found: str = obj["metadata"]["name"]
    return found


def namespace(obj: View) -> str:
    """Empty for kinds without namespaces."""
    found: str = obj["metadata"].get("namespace", "")
    return found


def uid(obj: View) -> str:
    """Empty for one that was not created yet."""
    found: str = obj["metadata"].get("uid", "")
    return found


def version(obj: View) -> str:
    """The resourceVersion; empty for one that was not created yet."""
    found: str = obj["metadata"].get("resourceVersion", "")
    return found


def labels(obj: View) -> Mapping[str, str]:
    found: Mapping[str, str] = obj["metadata"].get("labels") or {}
    return found


def key(obj: View) -> str:
    """``namespace/name``, or just the name for kinds without namespaces."""
    metadata = obj["metadata"]
    space = metadata.get("namespace")
    return f"{space}/{metadata['name']}" if space else str(metadata["name"])


def split(key: str) -> tuple[str, str]:
    """(namespace, name) of a key."""
    space, slash, own = key.partition("/")
    return (space, own) if slash else ("", space)


@dataclass(frozen=True, slots=True)
class Owner:
    """The controlling owner that an object names."""

    uid: str
    kind: str
    key: str


def owner(obj: View) -> Owner | None:
    """The owner that controls the object, if it has one."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            space = namespace(obj)
            own = reference["name"]
            return Owner(reference["uid"], reference["kind"], f"{space}/{own}" if space else own)
    return None
