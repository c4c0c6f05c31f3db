"""Storages that are no folders of the nodes, in pods: a container beside the job's mounts them, or copies artifacts. Pure.

The container (`fs.sidecar`) starts before the job's and ends after it, as Kubernetes' native sidecars do. It reaches the storage through the
server's file service, with a token for this one mount: no key of a store comes into a pod. Mounting needs a privileged container
and a folder of the node, through which the mount is seen by the job's own container; copies need neither.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from paddleflow.base.values import dataclass
from paddleflow.kube.resources import Object
from paddleflow.runtimes.artifacts import artifacts_of
from paddleflow.runtimes.runtime import RUN_VARIABLE, Launch, Mount

CONTAINER = "storages"
MOUNT, COPY = "mount", "copy"
KEY = "storages"  #: of the pod's secret: what the container is to do, with its tokens
FINAL = 2  #: exit code of the container when trying again would change nothing
STORE_SECONDS = 600  #: that outputs may take to be stored when the job has ended
_ON_NODES = "/var/lib/paddleflow/mounts"  #: not below the kubelet's own folders: it would empty what is mounted there
_FOLDER = "/paddleflow/storages"
_CLAIM = "pvc://"  #: pvc://NAMESPACE/NAME
_TOKENS = "/paddleflow/tokens"
_MEMORY = "1Gi"  #: limit of the container
_READY = f"{_FOLDER}/ready"


@dataclass(frozen=True, slots=True)
class StorageGrant:
    """The right of one pod to one mount."""

    mount: str  #: id
    token: str = field(repr=False)


#: Gives rights to storages for a launch, in the order of the mounts.
StorageGrants: TypeAlias = Callable[[Launch, Sequence[Mount]], Awaitable[Sequence[StorageGrant]]]


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """How the storages of a cluster's pods come there, as its administrator set it."""

    way: str = ""  #: MOUNT or COPY; empty: not at all
    server: str = ""  #: URL of the server as pods reach it


def remote(launch: Launch) -> list[tuple[int, Mount]]:
    """Storages that are neither folders nor claims, with their number among the launch's mounts."""
    found = enumerate(launch.mounts)
    return [(number, mount) for number, mount in found if "://" in mount.location and native_volume(mount) is None]


def native_volume(mount: Mount) -> Object | None:
    """What the kubelet itself mounts: a folder of the node, or a claim; None for everything else."""
    if mount.location.startswith("/"):
        return {"hostPath": {"path": mount.location, "type": "Directory"}}
    if mount.location.startswith(_CLAIM):
        claim = mount.location.removeprefix(_CLAIM).partition("/")[2]
        return {"persistentVolumeClaim": {"claimName": claim, "readOnly": mount.read_only}}
    return None


def refusal(launch: Launch, settings: StorageSettings, cluster: str, namespace: str) -> str:
    """Why the storages of a launch cannot be in a pod of this namespace; empty when they can."""
    for number, mount in enumerate(launch.mounts):
        what = f"storage {mount.storage} ({mount.location or 'it has no folder'})"
        if mount.location.startswith(_CLAIM):
            of = mount.location.removeprefix(_CLAIM).partition("/")[0]
            if of != namespace:
                return f"{what} is a claim of namespace {of}, and the job's queue has namespace {namespace}"
            continue
        if mount.location.startswith("/"):
            continue
        if "://" not in mount.location:
            return f"{what} cannot be mounted in a pod"
        if not settings.way:
            return f"{what} is not a folder of the nodes, and the setting storages of cluster {cluster} allows no others in pods"
        if settings.way == COPY and (number or RUN_VARIABLE not in launch.env):
            return (
                f"{what} cannot be mounted in pods of cluster {cluster}, whose setting storages is copy: "
                "only artifacts of pipelines on their main storage are copied"
            )
    return ""


def document(launch: Launch, settings: StorageSettings, pod: str, grants: Sequence[StorageGrant]) -> str:
    """What the container is to do."""
    server = urlsplit(settings.server)
    tls = server.scheme == "https"
    found = []
    for (number, mount), grant in zip(remote(launch), grants, strict=True):
        artifacts = artifacts_of(launch.env, mount.target)
        found.append(
            {
                "storage": mount.storage,
                "folder": f"{_on_node(pod)}/{number}" if settings.way == MOUNT else f"{_FOLDER}/{number}",
                "url": f"pfs://{server.hostname}:{server.port or (443 if tls else 80)}/{mount.storage}",
                "properties": {
                    "token": grant.token,
                    "mount": grant.mount,
                    "tls": str(tls).lower(),
                    "prefix": server.path.rstrip("/"),
                    "keep": "true",  # the container may start again
                },
                "subPath": mount.sub_path.strip("/"),
                "readOnly": mount.read_only,
                "inputs": artifacts.inputs,
                "outputs": artifacts.outputs,
            }
        )
    return json.dumps({"way": settings.way, "home": _FOLDER, "ready": _READY, "storages": found})


def _on_node(pod: str) -> str:
    return f"{_ON_NODES}/{pod}"


def add(spec: Object, launch: Launch, settings: StorageSettings, image: str, pod: str) -> None:
    """Put the container of the platform's image and its volumes into a pod, and what they bring into the job's container."""
    wanted = remote(launch)
    if not wanted:
        return
    mounting = settings.way == MOUNT
    own: list[Object] = [
        {"name": "storages", "mountPath": _FOLDER},
        {"name": "storage-tokens", "mountPath": _TOKENS, "readOnly": True},
    ]
    items = [{"key": KEY, "path": KEY}]
    spec["volumes"] += [
        {"name": "storages", "emptyDir": {}},
        {"name": "storage-tokens", "secret": {"secretName": pod, "items": items, "defaultMode": 0o444}},
    ]
    if mounting:
        spec["volumes"].append({"name": "mounts", "hostPath": {"path": _ON_NODES, "type": "DirectoryOrCreate"}})
        own.append({"name": "mounts", "mountPath": _ON_NODES, "mountPropagation": "Bidirectional"})
    for number, mount in wanted:
        volume, seen = _seen(number, mount, pod, mounting)
        spec["volumes"].append(volume)
        spec["containers"][0]["volumeMounts"].append(seen)
        if not mounting:
            own.append({"name": volume["name"], "mountPath": f"{_FOLDER}/{number}"})
    spec["initContainers"] = [_container(spec, image, own, mounting), *(spec.get("initContainers") or ())]
    if not mounting:
        spec["terminationGracePeriodSeconds"] = STORE_SECONDS


def _container(spec: Object, image: str, mounts: list[Object], mounting: bool) -> Object:
    rights: Object = {"privileged": True} if mounting else {"allowPrivilegeEscalation": False}
    if mounting or "runAsUser" not in spec["securityContext"]:
        # Root, because the user of the job's image is not known, and what it writes must be readable.
        rights |= {"runAsUser": 0, "runAsNonRoot": False}
    return {
        "name": CONTAINER,
        "image": image,
        "restartPolicy": "Always",
        "command": ["python3", "-m", "paddleflow.fs.sidecar", f"{_TOKENS}/{KEY}"],
        "env": [{"name": "HOME", "value": _FOLDER}],
        "volumeMounts": mounts,
        "startupProbe": {"exec": {"command": ["test", "-e", _READY]}, "periodSeconds": 1, "failureThreshold": 86400},
        "resources": {"requests": {"cpu": "0", "memory": "0"}, "limits": {"memory": _MEMORY}},
        "securityContext": rights,
    }


def _seen(number: int, mount: Mount, pod: str, mounting: bool) -> tuple[Object, Object]:
    """The volume of a storage, and how the job's container sees it."""
    name = f"storage-{number}"
    seen: Object = {"name": name, "mountPath": mount.target}
    if not mounting:  # the part of the storage that the job sees is all that is copied
        return {"name": name, "emptyDir": {}}, seen
    path = f"{_on_node(pod)}/{number}"
    seen |= {"readOnly": mount.read_only, "mountPropagation": "HostToContainer"}
    if mount.sub_path.strip("/"):
        seen["subPath"] = mount.sub_path.strip("/")
    return {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}, seen


# ---- what became of it ---------------------------------------------------------------------------------------------


def _states(found: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The state of the container now, and that of its life before."""
    for each in (found.get("status") or {}).get("initContainerStatuses") or ():
        if each.get("name") == CONTAINER:
            yield each.get("state") or {}
            yield each.get("lastState") or {}


def at_work(found: Mapping[str, Any]) -> bool:
    """Whether it still has to store what the job wrote."""
    return "running" in next(_states(found), {})


def preparing(found: Mapping[str, Any]) -> bool:
    """Whether the job's container waits for it."""
    statuses = (found.get("status") or {}).get("initContainerStatuses") or ()
    return at_work(found) and any(each.get("name") == CONTAINER and not each.get("started") for each in statuses)


def failure(found: Mapping[str, Any]) -> tuple[str, bool]:
    """What it could not do, in words, and whether trying again is no use."""
    for state in _states(found):
        ended = state.get("terminated") or {}
        if ended and not ended.get("exitCode"):
            break  # it has done its work, whatever happened before
        if ended:
            said = str(ended.get("message") or "").strip()
            return said or f"the container of its storages ended with {ended['exitCode']}", ended["exitCode"] == FINAL
    return "", False
