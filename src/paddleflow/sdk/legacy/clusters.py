"""The old calls for clusters."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from paddleflow.sdk.clusters import ClusterFields
from paddleflow.sdk.legacy import info
from paddleflow.sdk.legacy.calls import Calls, PaddleFlowSDKException, count, translated, wrong


class ClusterCalls(Calls):
    """Clusters."""

    @translated
    def create_cluster(
        self,
        clustername: str,
        endpoint: str,
        clustertype: str,
        credential: bytes | None = None,
        description: str | None = None,
        source: str | None = None,
        setting: str | None = None,
        status: str | None = None,
        namespacelist: list[str] | None = None,
        version: str | None = None,
    ) -> tuple[bool, str]:
        """The new cluster's id."""
        fields = _cluster(
            endpoint, clustertype, credential, description, source, setting, status, namespacelist, version
        )
        return True, self._pf.clusters.create(clustername, **fields).id

    @translated
    def update_cluster(
        self,
        clustername: str,
        endpoint: str | None = None,
        credential: bytes | None = None,
        clustertype: str | None = None,
        description: str | None = None,
        source: str | None = None,
        setting: str | None = None,
        status: str | None = None,
        namespacelist: list[str] | None = None,
        version: str | None = None,
    ) -> tuple[bool, str]:
        """The cluster's id."""
        fields = _cluster(
            endpoint, clustertype, credential, description, source, setting, status, namespacelist, version
        )
        return True, self._pf.clusters.update(clustername, **fields).id

    @translated
    def list_cluster(
        self,
        maxkeys: int = 100,
        marker: str | None = None,
        clustername: str | None = None,
        clusterstatus: str | None = None,
    ) -> tuple[bool, list[info.ClusterInfo], str | None]:
        page = self._pf.clusters.page(
            max_keys=count(maxkeys, "maxkeys"),
            marker=marker,
            names=[clustername] if clustername else (),
            status=clusterstatus,
        )
        return True, [info.ClusterInfo.of(cluster.raw) for cluster in page], page.next_marker

    @translated
    def show_cluster(self, clustername: str) -> tuple[bool, info.ClusterInfo]:
        cluster = self._pf.clusters.get(clustername)
        try:
            credential = base64.b64decode(cluster.credential, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise PaddleFlowSDKException("InvalidResponse", "Credential is not Base64 encoded") from error
        return True, replace(info.ClusterInfo.of(cluster.raw), credential=credential)

    @translated
    def delete_cluster(self, clustername: str) -> tuple[bool, str]:
        self._pf.clusters.delete(clustername)
        return True, clustername

    @translated
    def list_cluster_resource(self, clustername: str | None = None) -> tuple[bool, dict[str, Any]]:
        found = self._pf.clusters.resources([clustername] if clustername else ())
        return True, {name: dict(cluster.raw) for name, cluster in found.items()}

    @translated
    def list_cluster_resource_v2(
        self,
        page_no: int | None = None,
        page_size: int | None = None,
        clusternames: Sequence[str] | None = None,
        queuenaame: str | None = None,
        labels: str | None = None,
    ) -> tuple[bool, Mapping[str, Any]]:
        return True, self._pf.clusters.allocation(
            names=clusternames or (), queue=queuenaame, labels=labels, page_no=page_no, page_size=page_size
        )


def _encoded(credential: bytes | None) -> str | None:
    if credential is not None and not isinstance(credential, bytes):
        raise wrong("credential must be bytes type")
    return base64.b64encode(credential).decode() if credential else None


def _cluster(
    endpoint: str | None,
    clustertype: str | None,
    credential: bytes | None,
    description: str | None,
    source: str | None,
    setting: str | None,
    status: str | None,
    namespacelist: list[str] | None,
    version: str | None,
) -> ClusterFields:
    if namespacelist and not isinstance(namespacelist, list):
        raise wrong("namespaceList must be list type")
    return {
        "endpoint": endpoint or None,
        "type": clustertype or None,
        "credential": _encoded(credential),
        "description": description or None,
        "source": source or None,
        "setting": setting or None,
        "status": status or None,
        "namespaces": namespacelist or None,
        "version": version or None,
    }
