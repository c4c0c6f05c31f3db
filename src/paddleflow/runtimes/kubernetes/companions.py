"""What lies beside pods: config maps with files and code, secrets, headless services, Volcano's groups. Made before a pod, gone with it.

Everything has the label of its cluster; an object of the same name without it is never used and never deleted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Sequence
from contextlib import suppress

from paddleflow.errors import Conflict, Forbidden, Invalid, NotFound
from paddleflow.kube.client import Client
from paddleflow.kube.errors import AlreadyExists
from paddleflow.kube.resources import CONFIG_MAPS, PODGROUPS, PODS, SECRETS, SERVICES, Object, Resource, View
from paddleflow.runtimes.kubernetes import handover, pods, storages
from paddleflow.runtimes.kubernetes.pods import PodSettings
from paddleflow.runtimes.kubernetes.storages import StorageGrant
from paddleflow.runtimes.runtime import Launch

_TRIES = 10  #: how often a write is tried again that somebody else's came before


class Companions:
    """Of the pods of one cluster."""

    def __init__(self, client: Client, settings: PodSettings) -> None:
        self._client = client
        self._settings = settings

    async def create(self, launch: Launch, code: bytes, grants: Sequence[StorageGrant]) -> None:
        """All that the pod of a launch needs. What is there from an earlier try stays as it is."""
        settings, pod = self._settings, pods.pod_name(launch.attempt)
        tokens = storages.document(launch, settings.storages, pod, grants) if grants else ""
        for resource, made in (
            *((CONFIG_MAPS, each) for each in pods.config_maps(launch, settings, code)),
            (SECRETS, pods.secret(launch, settings, tokens)),
            (SERVICES, pods.service(launch, settings)),
            (PODGROUPS, handover.pod_group(launch, settings)),
        ):
            if made is not None:
                await self._create(resource, made)

    async def _create(self, resource: Resource, made: Object) -> None:
        """One of the name that is not ours is left alone, and the pod not made."""
        try:
            await self._client.create(resource, made)
        except AlreadyExists:
            metadata = made["metadata"]
            there = await self._client.get(resource, metadata["name"], metadata["namespace"])
            if not self._is_ours(there):
                name = f"{resource.kind} {metadata['namespace']}/{metadata['name']}"
                raise Invalid(f"a {name} is there that is not this job's") from None

    def _is_ours(self, found: View) -> bool:
        return bool((found["metadata"].get("labels") or {}).get(pods.CLUSTER_LABEL) == self._settings.label)

    async def remove(self, pod: View, job: str) -> None:
        """Take away what belonged to a pod, by its metadata, and to its job when no other pod of it is left."""
        name, space = pod["name"], pod["namespace"]
        for part in (await self._client.list(CONFIG_MAPS, space, labels=f"{pods.POD_LABEL}={name}")).items:
            await self.delete(CONFIG_MAPS, part["metadata"]["name"], space, part["metadata"]["uid"])
        if pods.HAS_SECRET in (pod.get("annotations") or {}):
            await self._delete_own(SECRETS, name, space)
        if job:
            await self._delete_own(SERVICES, pods.service_name(job), space)
            if self._settings.scheduler == handover.VOLCANO:
                await self._delete_own(PODGROUPS, pods.service_name(job), space)

    async def sweep(self, names: Container[str], jobs: Container[str]) -> None:
        """Take away what lies beside pods that are gone: a server may have died in between."""
        groups = [PODGROUPS] if self._settings.scheduler == handover.VOLCANO else []
        kinds = (CONFIG_MAPS, SERVICES, SECRETS, *groups)
        for resource, found in zip(kinds, await asyncio.gather(*map(self._list_ours, kinds)), strict=True):
            for each in found:
                metadata = each["metadata"]
                pod = (metadata.get("labels") or {}).get(pods.POD_LABEL)
                job = (metadata.get("annotations") or {}).get(pods.JOB_LABEL)
                if pod not in names and job not in jobs:
                    await self.delete(resource, metadata["name"], metadata["namespace"], metadata["uid"])

    async def _list_ours(self, resource: Resource) -> Sequence[Object]:
        try:
            return (await self._client.list(resource, labels=f"{pods.CLUSTER_LABEL}={self._settings.label}")).items
        except Forbidden:  # not everybody gives the right to list secrets: what a crash left of them stays then
            return ()

    async def _delete_own(self, resource: Resource, name: str, space: str) -> None:
        with suppress(NotFound):
            there = await self._client.get(resource, name, space)
            if self._is_ours(there):
                await self.delete(resource, name, space, there["metadata"]["uid"])

    async def delete(self, resource: Resource, name: str, space: str, uid: str) -> None:
        """Delete this very object, if it is there."""
        for _ in range(_TRIES):
            try:
                await self._client.delete(resource, name, space, uid=uid, grace=0)
            except NotFound:
                return
            except Conflict as error:
                conflict = error
            else:
                return
            with suppress(NotFound):
                if (await self._client.get(resource, name, space))["metadata"]["uid"] != uid:
                    return  # another one of the name
        raise conflict

    async def let_go(self, resource: Resource, name: str, space: str, uid: str, finalizers: Sequence[str]) -> None:
        """Take our finalizer off; those of others stay."""
        if resource == PODS and finalizers == [pods.ATTEMPT]:
            try:
                await self._client.patch(resource, name, space, body={"metadata": {"uid": uid, "finalizers": None}})
            except NotFound:
                return
            except Conflict:  # another pod of the name, or somebody was quicker: look
                pass
            else:
                return
        for _ in range(_TRIES):
            try:
                there = (await self._client.get(resource, name, space))["metadata"]
                others = [each for each in there.get("finalizers") or () if each != pods.ATTEMPT]
                seen = {"uid": uid, "resourceVersion": there["resourceVersion"], "finalizers": others}
                await self._client.patch(resource, name, space, body={"metadata": seen})
            except NotFound:
                return
            except Conflict as error:
                if there["uid"] != uid:
                    return
                conflict = error
            else:
                return
        raise conflict
