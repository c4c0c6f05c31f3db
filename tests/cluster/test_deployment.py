"""The platform as a deployment: its chart through Helm and our renderer, its objects on a real API server, and on real nodes two
servers on PostgreSQL that are upgraded and killed under load."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddleflow.podscheduler.definitions import definitions
from paddleflow.spec.paddlejob import crd
from scripts.lib import chart
from scripts.lib.manifests import dumped
from tests.cluster_fixture import LiveCluster, require
from tests.patience import PATIENCE, eventually

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "paddleflow"
KINDS = (
    "deployments,statefulsets,services,configmaps,poddisruptionbudgets,ingresses,serviceaccounts,roles,rolebindings,"
    "clusterroles,clusterrolebindings"
)
PARTS = [f"app.kubernetes.io/name=paddleflow-{part}" for part in ("server", "postgresql", "operator", "scheduler")]
VALUES: dict[str, Mapping[str, Any]] = {
    "defaults": {},
    "everything": {
        "replicas": 3,
        "scheduler": {"enabled": True, "replicas": 1},
        "operator": {"enabled": True, "scheduling": "paddleflow"},
        "postgresql": {"enabled": True, "storageClass": "fast"},
        "filesClaim": "files",
        "jobNamespace": "jobs",
        "tlsSecret": "tls",
        "env": [{"name": "PADDLEFLOW_SERVER_LOG_LEVEL", "value": "debug"}],
        "ingress": {
            "enabled": True,
            "className": "nginx",
            "host": "pf.test",
            "tlsSecret": "x",
            "annotations": {"a": "b"},
        },
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "imagePullSecrets": [{"name": "registry"}],
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {}},
    },
    "small": {
        "operator": {"enabled": False},
        "postgresql": {"enabled": True, "size": ""},
        "boards": {"enabled": False},
    },
}
LEASES = (("paddleflow", "default"), ("paddleflow-scheduler", "kube-system"))  #: that docs/guides/deploy.md deletes
Named = dict[tuple[str, str], Any]


@pytest.fixture
def with_helm(control_plane: LiveCluster) -> LiveCluster:
    require(["helm"])
    return control_plane


def helm(cluster: LiveCluster, *words: str) -> str:
    done = cluster.run("helm", *words)
    assert done.returncode == 0, f"helm {' '.join(words)}: {done.stdout}{done.stderr}"
    return done.stdout


def by_name(objects: Iterator[Any] | list[Any]) -> Named:
    return {(each["kind"], each["metadata"]["name"]): each for each in objects if each}


def rendered(cluster: LiveCluster, space: str, *words: str) -> Named:
    place = ("paddleflow", str(CHART), "--namespace", space, "--kube-version", "1.34.4")
    return by_name(yaml.safe_load_all(helm(cluster, "template", *place, *words)))


@pytest.mark.parametrize("values", VALUES.values(), ids=VALUES)
def test_helm_renders_the_platform_as_we_do(with_helm: LiveCluster, tmp_path: Path, values: Mapping[str, Any]) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(dict(values)))
    assert rendered(with_helm, "pf", "--values", str(file)) == by_name(chart.render(CHART, "pf", values))


def test_the_plain_manifest_is_the_chart(with_helm: LiveCluster) -> None:
    ours = by_name(yaml.safe_load_all((ROOT / "deploy" / "paddleflow.yaml").read_text("utf-8")))
    assert ours.pop(("Namespace", "paddle-system"))
    words = ("--set", "scheduler.enabled=true", "--include-crds")
    assert ours == rendered(with_helm, "paddle-system", *words)
    output = helm(with_helm, "lint", "--strict", str(CHART))
    assert "1 chart(s) linted, 0 chart(s) failed" in output


def test_the_api_server_takes_every_object_and_gives_it_up_again(control_plane: LiveCluster) -> None:
    values = {**VALUES["everything"], "serviceMonitor": {"enabled": False}, "jobNamespace": ""}
    before = parts_of(control_plane)  # other tests may have installed the operator
    with control_plane.namespace() as space:
        objects = dumped(*chart.render(CHART, space, values))
        control_plane.apply(objects)
        control_plane.apply(dumped(crd.definition(), *definitions()))
        again = control_plane.kubectl("diff", "--server-side", "--force-conflicts", "-f", "-", stdin=objects)
        assert again == "", "applied twice, nothing changes"
        control_plane.kubectl("delete", "--wait=false", "-f", "-", stdin=objects)
        # Other tests expect a cluster without Volcano.
        control_plane.kubectl("delete", "--wait=false", "-f", "-", stdin=dumped(*definitions()))
        eventually(lambda: parts_of(control_plane) <= before, "nothing is left")


def parts_of(cluster: LiveCluster) -> set[str]:
    """The platform's objects: kind, namespace, name."""
    columns = "custom-columns=kind:.kind,namespace:.metadata.namespace,name:.metadata.name"
    shown = (cluster.kubectl("get", KINDS, "-A", "-l", label, "--no-headers", "-o", columns) for label in PARTS)
    return {" ".join(line.split()) for text in shown for line in text.splitlines()}


def everything(cluster: LiveCluster) -> set[str]:
    """Every object of every kind, events aside: also leases, secrets, definitions, webhooks and policies."""
    kinds = cluster.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    asked = ",".join(kind for kind in kinds if kind.partition(".")[0] != "events")
    columns = "custom-columns=kind:.kind,namespace:.metadata.namespace,name:.metadata.name"
    shown = cluster.kubectl("get", asked, "-A", "--ignore-not-found", "--no-headers", "-o", columns)
    return {" ".join(line.split()) for line in shown.splitlines()}


# ---- on real nodes -------------------------------------------------------------------------------------------------

PASSWORD = "the password of root"
FILES = """
apiVersion: v1
kind: PersistentVolume
metadata: {{name: {space}-files}}
spec:
  capacity: {{storage: 1Gi}}
  accessModes: [ReadWriteMany]
  hostPath: {{path: "{folder}"}}
  storageClassName: ""
  claimRef: {{namespace: {space}, name: files}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: files, namespace: {space}}}
spec:
  accessModes: [ReadWriteMany]
  storageClassName: ""
  volumeName: {space}-files
  resources: {{requests: {{storage: 1Gi}}}}
"""
LOAD = """
apiVersion: v1
kind: Pod
metadata: {{name: load, namespace: {space}}}
spec:
  restartPolicy: Never
  containers:
  - name: load
    image: docker.io/local/paddleflow:dev
    command: [python3, /load/deployment_load.py, "https://paddleflow:8999", "{password}", "{jobs}"]
    env: [{{name: SSL_CERT_FILE, value: /tls/tls.crt}}]
    volumeMounts: [{{name: load, mountPath: /load}}, {{name: tmp, mountPath: /tmp}}, {{name: tls, mountPath: /tls}}]
  volumes:
  - {{name: load, configMap: {{name: load}}}}
  - {{name: tmp, emptyDir: {{}}}}
  - {{name: tls, secret: {{secretName: tls, items: [{{key: tls.crt, path: tls.crt}}]}}}}
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nothing_acknowledged_is_lost_by_upgrades_and_killed_pods(cluster: LiveCluster, tmp_path: Path) -> None:
    require(["helm", "postgres-image"])
    cluster.load("operator", "postgres")
    files = tmp_path / "files"
    files.mkdir()
    files.chmod(0o777)
    before, all_before = parts_of(cluster), everything(cluster)
    with cluster.namespace() as space, cluster.namespace() as jobs:
        prepare(cluster, space, files)
        add_certificate(cluster, space, tmp_path)
        words = settings(jobs)
        with installed(cluster, space, words):
            upgrade_and_kill(cluster, space, jobs, words)
        assert parts_of(cluster) <= before
        assert "owner=helm" not in cluster.kubectl("get", "secrets", "-n", space, "--show-labels")
    for lease, place in LEASES:
        cluster.kubectl("delete", "--ignore-not-found", "lease", lease, "--namespace", place)
    eventually(lambda: everything(cluster) <= all_before, "what the guide deletes is all that there was", 4 * PATIENCE)


@contextmanager
def installed(cluster: LiveCluster, space: str, words: list[str]) -> Iterator[None]:
    """The platform, taken away again whatever happens: other tests share the cluster."""
    helm(cluster, "install", "pf", str(CHART), "--namespace", space, *words)
    try:
        yield
    finally:
        helm(cluster, "uninstall", "pf", "--namespace", space, "--wait")
        cluster.kubectl("delete", "pv", f"{space}-files", "--wait=false")
        cluster.kubectl("delete", "--ignore-not-found", "-f", str(ROOT / "deploy" / "crds"))


def upgrade_and_kill(cluster: LiveCluster, space: str, jobs: str, words: list[str]) -> None:
    rolled_out(cluster, space)
    cluster.kubectl(
        *("create", "configmap", "load", "-n", space),
        f"--from-file={Path(__file__).parent / 'deployment_load.py'}",
    )
    cluster.apply(LOAD.format(space=space, password=PASSWORD, jobs=jobs))
    acknowledged(cluster, space, 5)

    helm(cluster, "upgrade", "pf", str(CHART), "--namespace", space, *words,
         "--set", "env[0].name=PADDLEFLOW_SERVER_LOG_LEVEL,env[0].value=info")  # fmt: skip
    rolled_out(cluster, space)
    assert "again" not in cluster.kubectl("logs", "-n", space, "load"), "an upgrade refuses nobody"
    for pod in running_servers(cluster, space)[:1]:
        cluster.kubectl("delete", "-n", space, pod, "--grace-period=0", "--force")
    cluster.kubectl("exec", "-n", space, "paddleflow-postgresql-0", "--", "sh", "-c", "kill -QUIT 1")
    acknowledged(cluster, space, 10)
    rolled_out(cluster, space)

    cluster.kubectl("exec", "-n", space, "load", "--", "touch", "/tmp/stop")
    result = json.loads(after(cluster, space, "result "))
    known = {line.split()[1] for line in load_lines(cluster, space) if line.startswith("acknowledged ")}
    assert known == set(result["jobs"])
    assert set(result["jobs"].values()) == {"succeeded"}, result
    assert set(result["logs"].values()) == {"ran\n"}, "also of jobs whose server is gone"
    checked = {what: ok for what, ok, _ in json.loads(after(cluster, space, "check "))}
    assert checked["rights"] is True


def prepare(cluster: LiveCluster, space: str, files: Path) -> None:
    cluster.apply(FILES.format(space=space, folder=files))
    key = base64.b64encode(os.urandom(32)).decode()
    cluster.kubectl(
        *("create", "secret", "generic", "paddleflow", "-n", space, f"--from-literal=root-password={PASSWORD}"),
        *("--from-literal=database-password=word", f"--from-literal=encryption.keys=k1 {key}\n"),
    )


def add_certificate(cluster: LiveCluster, space: str, folder: Path) -> None:
    """A secret `tls` for the service, signed by itself."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    cert, key = folder / "tls.crt", folder / "tls.key"
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=paddleflow"),
            *("-addext", "subjectAltName=DNS:paddleflow", "-keyout", str(key), "-out", str(cert)),
        ],
        check=True,
        capture_output=True,
    )
    cluster.kubectl("create", "secret", "tls", "tls", "-n", space, f"--cert={cert}", f"--key={key}")


def settings(jobs: str) -> list[str]:
    given = {
        "global.image": "docker.io/local/paddleflow:dev",
        "postgresql.enabled": "true",
        "postgresql.image": "docker.io/local/postgres:1",
        "postgresql.runAsUser": "65534",
        "postgresql.size": "",
        "filesClaim": "files",
        "jobNamespace": jobs,
        "tlsSecret": "tls",
    }
    return ["--set", ",".join(f"{key}={value}" for key, value in given.items())]


def rolled_out(cluster: LiveCluster, space: str) -> None:
    cluster.kubectl("rollout", "status", "deployment/paddleflow-server", "-n", space, "--timeout=300s")


def running_servers(cluster: LiveCluster, space: str) -> list[str]:
    return cluster.kubectl(
        "get", "pods", "-n", space, "-l", PARTS[0], "--field-selector=status.phase=Running", "-o", "name"
    ).split()


def load_lines(cluster: LiveCluster, space: str) -> list[str]:
    return cluster.kubectl("logs", "-n", space, "load").splitlines()


def acknowledged(cluster: LiveCluster, space: str, more: int) -> None:
    """Until so many more jobs than now are."""

    def count() -> int:
        done = cluster.run("kubectl", "logs", "-n", space, "load")
        return sum(line.startswith("acknowledged ") for line in done.stdout.splitlines())

    before = count()
    eventually(lambda: count() >= before + more, "the load goes on", 4 * PATIENCE)


def after(cluster: LiveCluster, space: str, word: str) -> str:
    """What follows the word in the load's output, once it is there."""

    def found() -> list[str]:
        return [line.removeprefix(word) for line in load_lines(cluster, space) if line.startswith(word)]

    return eventually(found, word, 4 * PATIENCE)[0]


CONTROLLER = """
apiVersion: v1
kind: ServiceAccount
metadata: {{name: controller, namespace: {space}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: controller, namespace: {space}}}
rules:
- {{apiGroups: [networking.k8s.io], resources: [ingresses], verbs: [list]}}
- {{apiGroups: [""], resources: [services, secrets], verbs: [get]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: controller, namespace: {space}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: controller}}
subjects: [{{kind: ServiceAccount, name: controller, namespace: {space}}}]
---
apiVersion: v1
kind: Pod
metadata: {{name: controller, namespace: {space}}}
spec:
  serviceAccountName: controller
  terminationGracePeriodSeconds: 0
  hostAliases: [{{ip: 127.0.0.1, hostnames: [paddleflow, other]}}]
  containers:
  - name: controller
    image: docker.io/local/paddleflow:dev
    command: [python3, /code/ingress_proxy.py, "{space}"]
    env: [{{name: SSL_CERT_FILE, value: /tls/tls.crt}}]
    volumeMounts: [{{name: code, mountPath: /code}}, {{name: tmp, mountPath: /tmp}}, {{name: tls, mountPath: /tls}}]
    readinessProbe: {{tcpSocket: {{port: 8443}}, periodSeconds: 1}}
  volumes:
  - {{name: code, configMap: {{name: controller}}}}
  - {{name: tmp, emptyDir: {{}}}}
  - {{name: tls, secret: {{secretName: tls, items: [{{key: tls.crt, path: tls.crt}}]}}}}
"""
#: what a person does who knows only the host of the ingress: a job, from its submit to the last line of its log
CALLER = f"""
import json, urllib.error, urllib.request
from paddleflow.sdk.client import connect
client = connect("https://paddleflow:8443", username="root", password="{PASSWORD}")
job = client.jobs.submit({{"command": "echo one; sleep 2; echo two", "schedulingPolicy": {{"queue": "default-queue"}}}})
lines = list(job.logs(follow=True))
print(json.dumps(["".join(lines), job.wait(60).status]))
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_ingress_leads_to_the_servers(cluster: LiveCluster, tmp_path: Path) -> None:
    """TLS ends at the controller, with the certificate that the Ingress names; the log of a job is followed through it."""
    require(["helm", "postgres-image"])
    cluster.load("operator", "postgres")
    files = tmp_path / "files"
    files.mkdir()
    files.chmod(0o777)
    with cluster.namespace() as space, cluster.namespace() as jobs:
        prepare(cluster, space, files)
        add_certificate(cluster, space, tmp_path)
        ingress = "tlsSecret=,replicas=1,operator.enabled=false,ingress.enabled=true,ingress.host=paddleflow,ingress.tlsSecret=tls"
        with installed(cluster, space, [*settings(jobs), "--set", ingress]):
            rolled_out(cluster, space)
            code = f"--from-file={Path(__file__).parent / 'ingress_proxy.py'}"
            cluster.kubectl("create", "configmap", "controller", "-n", space, code)
            cluster.apply(CONTROLLER.format(space=space))
            cluster.wait("pod/controller", "condition=Ready", space)
            said = cluster.kubectl("exec", "-n", space, "controller", "--", "python3", "-c", CALLER)
            assert json.loads(said) == ["one\ntwo\n", "succeeded"]
            other = 'import urllib.request; urllib.request.urlopen("https://other:8443/")'
            refused = cluster.refusal("exec", "-n", space, "controller", "--", "python3", "-c", other)
            assert "UNRECOGNIZED_NAME" in refused.upper().replace(" ", "_"), refused
