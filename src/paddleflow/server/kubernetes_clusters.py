"""Clusters of type Kubernetes and K3S: from a row with its encrypted kubeconfig to a runtime, and the check before one is made.

One client per runtime, and one more for its lease, which must not be fenced by itself.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

from paddleflow.access import tokens
from paddleflow.access.callers import mount_scope
from paddleflow.api.cluster_view import ClusterCheck, ClusterFinding
from paddleflow.api.platform import CLUSTERS_FOLDER
from paddleflow.base.clock import Clock
from paddleflow.base.values import dataclass
from paddleflow.errors import Invalid, NotFound, PaddleFlowError
from paddleflow.jobs.code import FOLDER as CODE_FOLDER
from paddleflow.jobs.code import CodeStore
from paddleflow.kube.client import Client
from paddleflow.kube.config import from_text, in_cluster
from paddleflow.kube.lease import Lease
from paddleflow.kube.rights import missing_rights
from paddleflow.kube.transport import Endpoint, HttpTransport
from paddleflow.objects.local import LocalStore
from paddleflow.podscheduler.foreign_pods import ForeignPods, needed_rights
from paddleflow.podscheduler.writer import IN_FLIGHT
from paddleflow.queues.credentials import kubeconfig_of
from paddleflow.queues.model import Cluster
from paddleflow.queues.rules import setting_of
from paddleflow.runtimes.kubernetes.handover import SCHEDULERS
from paddleflow.runtimes.kubernetes.kubernetes_runtime import KubernetesRuntime, Spawn
from paddleflow.runtimes.kubernetes.pods import PodSettings, pod_name
from paddleflow.runtimes.kubernetes.preflight import LEASE, inspect, refused_credential
from paddleflow.runtimes.kubernetes.storages import StorageGrant, StorageSettings
from paddleflow.runtimes.runtime import Launch, Mount
from paddleflow.settings import KubernetesEnvironment
from paddleflow.storage import mounts
from paddleflow.storage.storages import storage_by_id
from paddleflow.store.database import Database, Tx
from paddleflow.store.encryption import Keyring

CONNECTIONS = 32  #: to one API server
CHECK_CONNECTIONS = 4


@dataclass(frozen=True, slots=True)
class KubernetesClusters:
    """Makes runtimes, and says what a cluster lacks."""

    files: Path  #: folder that servers share: logs of jobs elsewhere, and code
    clock: Clock
    keyring: Keyring
    environment: KubernetesEnvironment
    spawn: Spawn  #: of the task group that owns what runtimes do in the background
    database: Database

    def runtime(self, cluster: Cluster) -> KubernetesRuntime:
        """The runtime of a cluster, not opened yet; `Invalid` when its credential cannot be used."""
        endpoint, setting = self._endpoint(cluster), setting_of(cluster)
        lease_client = Client(HttpTransport(endpoint, limit=CHECK_CONNECTIONS))
        return KubernetesRuntime(
            Client(HttpTransport(endpoint, limit=CONNECTIONS)),
            self.clock,
            self.files / CLUSTERS_FOLDER / cluster.name,
            self.spawn,
            settings=PodSettings(
                cluster=cluster.name,
                namespace=cluster.namespaces[0] if cluster.namespaces else endpoint.namespace or "default",
                default_image=setting.default_image,
                image_pull_secrets=setting.image_pull_secrets,
                service_account=setting.service_account,
                tolerations=setting.tolerations,
                run_as_user=setting.run_as_user,
                root_queues=setting.root_queues,
                priority_classes=setting.priority_classes,
                ephemeral_storage=setting.ephemeral_storage,
                lost_node_seconds=setting.lost_node_seconds,
                storages=StorageSettings(setting.storages, setting.server_url),
                platform_image=setting.platform_image,
                environments_folder=setting.environments_folder,
                scheduler=SCHEDULERS[setting.scheduler],
            ),
            code=self._packed_code,
            grants=self._grants,
            lease=Lease(lease_client, LEASE, setting.lease_namespace, cluster.id, self.clock),
            foreign_pods=None if SCHEDULERS[setting.scheduler] else self._foreign_pods(cluster, endpoint),
            image_grace=setting.image_grace_seconds,
        )

    def _foreign_pods(self, cluster: Cluster, endpoint: Endpoint) -> ForeignPods:
        return ForeignPods(
            Client(HttpTransport(endpoint, limit=IN_FLIGHT)),
            Client(HttpTransport(endpoint, limit=CHECK_CONNECTIONS)),
            self.clock,
            self.spawn,
            cluster=cluster.name,
            identity=f"server of cluster {cluster.id}",
        )

    async def check(self, cluster: Cluster) -> ClusterCheck:
        """Connect and look; errors say which of them: the kubeconfig, the way there, who we are."""
        endpoint, setting = self._endpoint(cluster), setting_of(cluster)
        _compare_endpoints(cluster, endpoint)
        client = Client(HttpTransport(endpoint, limit=CHECK_CONNECTIONS))
        try:
            namespaces = cluster.namespaces or (endpoint.namespace or "default",)
            found = await inspect(client, namespaces, setting.lease_namespace, cluster.id)
            denied = await missing_rights(client, needed_rights())
        except PaddleFlowError as error:
            token = (await endpoint.credentials.get()).token
            if why := refused_credential(error, token, self.clock):
                raise Invalid(f"cluster[{cluster.name}]: {why}", code="InvalidClusterCredential") from error
            raise
        finally:
            await client.close()
        findings = [ClusterFinding(e.what, e.ok, e.message, e.hint, e.needed) for e in found.findings]
        if denied:
            so = "pods of others that name the scheduler paddleflow are counted and not placed"
            text = f"not allowed to {', '.join(map(str, denied))}: {so}"
            findings.append(ClusterFinding("foreign pods", False, text, "", False))
        return ClusterCheck(
            version=found.version,
            endpoint=f"{'https' if endpoint.tls else 'http'}://{endpoint.host}:{endpoint.port}",
            findings=findings,
        )

    def _endpoint(self, cluster: Cluster) -> Endpoint:
        if cluster.credential:
            return from_text(kubeconfig_of(self.keyring, cluster.name, cluster.credential), self.environment)
        if self.environment.host:
            return in_cluster(self.environment)
        raise Invalid(
            f"cluster[{cluster.name}] has no credential, and this server does not run in a cluster",
            code="InvalidClusterCredential",
            hint="give its kubeconfig with -c FILE",
        )

    async def _grants(self, launch: Launch, wanted: Sequence[Mount]) -> Sequence[StorageGrant]:
        """Tokens for the storages of a pod, each for one storage, as `paddleflow fs mount` gets them. They run out by themselves."""
        now, pod = self.clock.now(), pod_name(launch.attempt)

        def grant(tx: Tx) -> list[StorageGrant]:
            found = []
            for mount in wanted:
                storage = storage_by_id(tx, mount.storage)
                if storage is None:
                    raise NotFound(f"fs[{mount.storage}] no longer exists", code="FileSystemNotExist")
                scope = mount_scope(storage.id, read_only=mount.read_only)
                token = tokens.issue(tx, launch.user, now, mounts.LIFETIME / 3600, scope=scope)
                made = mounts.add_mount(tx, storage, launch.user, pod, mount.target, tokens.digest(token), now)
                found.append(StorageGrant(made.id, token))
            return found

        return await self.database.write(grant)

    def _packed_code(self, user: str, snapshot: str) -> bytes:
        folder = self.files / CODE_FOLDER
        if not folder.is_dir():
            raise NotFound(f"code snapshot[{snapshot[:80]}] of user[{user}] is not on this server")
        with closing(CodeStore(LocalStore(folder, name="the code store"))) as store:
            return gzip.compress(b"".join(store.tar(user, snapshot)), 6)


def _compare_endpoints(cluster: Cluster, endpoint: Endpoint) -> None:
    """A kubeconfig of another cluster is a common slip."""
    if not cluster.credential or "://" not in cluster.endpoint:
        return
    wanted = urlsplit(cluster.endpoint)
    port = wanted.port or (443 if wanted.scheme == "https" else 80)
    if (wanted.hostname, port) != (endpoint.host, endpoint.port):
        raise Invalid(
            f"cluster[{cluster.name}] has the endpoint {cluster.endpoint}, its kubeconfig is of {endpoint.host}:{endpoint.port}",
            code="InvalidClusterCredential",
            hint="kubectl config use-context chooses another cluster of the file",
        )
