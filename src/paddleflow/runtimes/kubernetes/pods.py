"""An attempt as a pod: its name and manifest, and what it needs beside it. Pure; `status` reads what became of it.

The name follows from the attempt, so that creating it twice is refused by the API server instead of happening. A finalizer keeps
the pod, and with it the exit code, until the platform has recorded the end: whoever deletes the pod, and while no server runs.

Members of a job find each other by name: each pod has its member's name as its host name below a headless service of the job
(``worker-1.job-0a1b``), which the cluster's DNS resolves as soon as the pod has an address.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import field

from paddleflow.base.ids import AttemptId, parse_attempt
from paddleflow.base.names import LABEL_VALUE
from paddleflow.base.quantity import Resources
from paddleflow.base.values import dataclass
from paddleflow.kube.resources import CONFIG_MAPS, PODS, SECRETS, SERVICES, Object
from paddleflow.runtimes.kubernetes import environments, storages, templates
from paddleflow.runtimes.kubernetes.storages import StorageSettings
from paddleflow.runtimes.runtime import SECRETS_VARIABLE, Launch, Mount

CLUSTER_LABEL = "paddleflow.org/cluster"  #: on everything that a runtime makes
JOB_LABEL = "paddleflow-job-id"  #: on every pod, as the reference has it
POD_LABEL = "paddleflow.org/pod"  #: on what belongs to one pod: the pod's name
ATTEMPT = "paddleflow.org/attempt"  #: annotation with the attempt's id, and the finalizer
HAS_SECRET = "paddleflow.org/secret"  # noqa: S105  an annotation: a secret of the pod's name lies beside it
EVERY_QUEUE = "*"
CONTAINER = "main"
SCHEDULER = "paddleflow"  #: `schedulerName` of pods of others that the engine, or a scheduler that runs alone, places
QUEUE = "scheduling.volcano.sh/queue-name"  #: annotation of such pods
FOLDER = "/paddleflow/jobs"
CODE = "/paddleflow/code"  #: where the snapshot of the code is unpacked
_PARTS = "/paddleflow/parts"
CODE_PART = 700_000  #: bytes of a config map: base64 of it must stay below the API server's limit of 1 MiB
MOST_IN_MAPS = 16 * CODE_PART  #: bytes of a packed snapshot that come as config maps; larger ones are sent to the pod
MOST_CODE = 256 * 2**20  #: bytes of a packed snapshot
CODE_CONTAINER = "code"  #: the init container that has the code put in place
SENT_CODE = "paddleflow.org/code"  #: annotation of a pod that waits for its code: user and snapshot
DISK = "ephemeral-storage"
_LONGEST_NAME = 63
_LONGEST_OBJECT = 40  #: characters of the name of an operator's object: what the operator makes of it has longer ones
SECRETS_FOLDER = "/paddleflow/secrets"
_UNPACK = f"cat {_PARTS}/* | tar -xzf - -C {CODE}"
_WAIT = f"until [ -e {_PARTS}/done ]; do sleep 1; done"


@dataclass(frozen=True, slots=True)
class PodSettings:
    """What the pods of a cluster have in common, as its administrator set it."""

    cluster: str  #: name of the cluster
    namespace: str = "default"  #: of launches that name none
    default_image: str = ""
    image_pull_secrets: Sequence[str] = ()
    service_account: str = ""
    tolerations: Sequence[Mapping[str, str]] = ()
    run_as_user: int | None = None  #: None: the image's own user, which may not be root
    root_queues: Sequence[str] = ()  #: queues whose pods run as the image's own user, be it root; EVERY_QUEUE: all
    priority_classes: Mapping[str, str] = field(default_factory=dict)  #: priority of a job → name of a PriorityClass
    lost_node_seconds: int = 60  #: after which the pods of a node that does not answer are given up
    ephemeral_storage: str = ""  #: that each pod may use of its node's disk; empty: no limit
    platform_image: str = ""  #: of the containers beside jobs that bring storages and install requirements
    environments_folder: str = (
        ""  #: of the nodes, that keeps what was installed for requirements; empty: each pod installs its own
    )
    storages: StorageSettings = field(default_factory=StorageSettings)
    scheduler: str = ""  #: `schedulerName` of pods that are handed over to it; empty: the engine places them

    @property
    def label(self) -> str:
        """The value of `CLUSTER_LABEL` on everything of this cluster."""
        return cluster_label(self.cluster)

    def allows_root(self, queue: str) -> bool:
        return queue in self.root_queues or EVERY_QUEUE in self.root_queues


def cluster_label(cluster: str) -> str:
    """The value of `CLUSTER_LABEL`: the name of the cluster where that may be the value of a label, else its beginning and a digest."""
    return cluster if LABEL_VALUE.pattern.fullmatch(cluster) else _label(cluster, cluster)


def pod_name(attempt: AttemptId) -> str:
    """A DNS label: the attempt's id where that is one but for its dots, else its beginning and a digest."""
    return _label(attempt.replace(".", "-"), attempt)


def object_name(attempt: AttemptId) -> str:
    """Of an operator's object: short, because its pods and services add to it, and beginning with a letter, because services must."""
    plain = attempt.replace(".", "-")
    return _label(plain if plain[:1].isalpha() else f"j-{plain}", attempt, _LONGEST_OBJECT)


def service_name(job: str) -> str:
    """Of the job's headless service. It must begin with a letter."""
    return _label(job if job[:1].isalpha() else f"j-{job}", job)


def _label(wanted: str, whole: str, longest: int = _LONGEST_NAME) -> str:
    plain = wanted.lower()
    if len(plain) <= longest and re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?", plain) and plain == wanted:
        return plain
    digest = hashlib.sha256(whole.encode()).hexdigest()[:12]
    kept = re.sub(r"[^-a-z0-9]+", "-", plain).strip("-")[: longest - 13].rstrip("-") or "attempt"
    return f"{kept}-{digest}"


def member_address(job: str, role: str, index: int) -> str:
    return f"{role}-{index}.{service_name(job)}"


def job_folder(job: str) -> str:
    return f"{FOLDER}/{job}"


def refusal(launch: Launch, settings: PodSettings) -> str:
    """Why a launch cannot be a pod; empty when it can."""
    if not (launch.image or settings.default_image):
        return "the job names no image, and its cluster has no default one"
    if launch.requirements and not settings.platform_image:
        return (
            f"requirements are installed in pods by the image platformImage of cluster {settings.cluster}, which names none: "
            "use an image that has these packages"
        )
    if asked := templates.refused(launch.template) or templates.unsupported_volume(launch.template):
        return f"{asked} is not allowed in jobs of this cluster"
    return storages.refusal(launch, settings.storages, settings.cluster, launch.namespace or settings.namespace)


# ---- what lies beside a pod ----------------------------------------------------------------------------------------


def service(launch: Launch, settings: PodSettings) -> Object | None:
    """The headless service of a job whose members talk to each other."""
    if not (launch.ports or launch.address):
        return None
    job, _, _ = parse_attempt(launch.attempt)
    made = SERVICES.object(
        service_name(job),
        launch.namespace or settings.namespace,
        spec={
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {JOB_LABEL: job, CLUSTER_LABEL: settings.label},
        },
    )
    made["metadata"] |= {"labels": {CLUSTER_LABEL: settings.label}, "annotations": {JOB_LABEL: job}}
    return made


def config_maps(launch: Launch, settings: PodSettings, code: bytes = b"") -> list[Object]:
    """The small files of a launch, and the packed snapshot of its code."""
    made = [CONFIG_MAPS.object(pod_name(launch.attempt), data=_numbered("file", launch.files))] if launch.files else []
    for number, name in enumerate(code_parts(launch.attempt, len(code))):
        part = code[number * CODE_PART : (number + 1) * CODE_PART]
        made.append(CONFIG_MAPS.object(name, binaryData={"part": base64.b64encode(part).decode()}))
    for each in made:
        each["immutable"] = True
        each["metadata"] |= {
            "namespace": launch.namespace or settings.namespace,
            "labels": {CLUSTER_LABEL: settings.label, POD_LABEL: pod_name(launch.attempt)},
        }
    return made


def secret(launch: Launch, settings: PodSettings, tokens: str = "") -> Object | None:
    """The secrets of a launch, and what its storages need: they come and go with its pod, and stand in no manifest of it."""
    values = {**_numbered("env", launch.secret_env), **_numbered("file", launch.secret_files)}
    if tokens:
        values[storages.KEY] = tokens
    if not values:
        return None
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in values.items()}
    made = SECRETS.object(pod_name(launch.attempt), launch.namespace or settings.namespace, data=encoded)
    made["immutable"] = True
    made["metadata"]["labels"] = {CLUSTER_LABEL: settings.label, POD_LABEL: pod_name(launch.attempt)}
    return made


def _numbered(prefix: str, values: Mapping[str, str]) -> dict[str, str]:
    """Keys that a config map or secret may have, whatever the names are."""
    return {f"{prefix}-{number}": text for number, (_, text) in enumerate(sorted(values.items()))}


def receive_code(size: int) -> tuple[str, ...]:
    """The command by which a pod that waits for its code reads it. Run twice, it does the same again."""
    return "/bin/sh", "-c", f"head -c {size} | tar -xzf - -C {CODE} && touch {_PARTS}/done"


def code_parts(attempt: AttemptId, size: int) -> list[str]:
    """The names of the config maps of a packed snapshot; none when it is sent."""
    if size > MOST_IN_MAPS:
        return []
    return [f"{pod_name(attempt)}-code-{number:02}" for number in range(-(-size // CODE_PART))]


# ---- the pod -------------------------------------------------------------------------------------------------------


def pod(launch: Launch, settings: PodSettings, code_size: int = 0) -> Object:
    job, (role, index), _ = parse_attempt(launch.attempt)
    image = launch.image or settings.default_image
    volumes, mounts = _volumes(launch, job)
    container: Object = {
        "name": CONTAINER,
        "image": image,
        "command": [_literal(word) for word in launch.command],
        "env": [{"name": name, "value": _literal(value)} for name, value in launch.env.items()],
        "workingDir": _working_dir(launch, job),
        "volumeMounts": mounts,
        "resources": _resources(launch, settings),
        "securityContext": {"allowPrivilegeEscalation": False},
    }
    if launch.ports:
        container["ports"] = [{"containerPort": port} for port in launch.ports]
    if launch.ready_port is not None:
        container["readinessProbe"] = {"tcpSocket": {"port": launch.ready_port}, "periodSeconds": 1}
    spec: Object = {
        "restartPolicy": "Never",
        # The first process of a container would ignore every signal that it has no handler for: a stop would always wait for its
        # whole grace time. Like this the pod's own first process is the first one.
        "shareProcessNamespace": True,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": volumes,
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        **_common(launch, settings),
    }
    if not settings.allows_root(launch.queue):
        spec["securityContext"]["runAsNonRoot"] = True
        if settings.run_as_user is not None:
            spec["securityContext"]["runAsUser"] = settings.run_as_user
    if launch.secret_env or launch.secret_files:
        _add_secrets(spec, launch)
    if launch.ports or launch.address:
        spec |= {"hostname": f"{role}-{index}", "subdomain": service_name(job)}
    if launch.code:
        _add_code(spec, launch, code_size, image)
    if launch.requirements:
        folder = settings.environments_folder
        environments.add(spec, launch.requirements, settings.platform_image, folder, launch.user)
    storages.add(spec, launch, settings.storages, settings.platform_image, pod_name(launch.attempt))
    templates.fill(spec, launch.template, root=settings.allows_root(launch.queue))
    if launch.node:
        spec["nodeName"] = launch.node
    made = PODS.object(pod_name(launch.attempt), launch.namespace or settings.namespace, spec=spec)
    labels = {key: value for key, value in launch.labels.items() if LABEL_VALUE.pattern.fullmatch(value)}
    made["metadata"] |= {
        "labels": {**labels, JOB_LABEL: job, CLUSTER_LABEL: settings.label},
        "annotations": {**launch.annotations, ATTEMPT: launch.attempt},
        "finalizers": [ATTEMPT],
    }
    if launch.secret_env or launch.secret_files or storages.remote(launch):
        made["metadata"]["annotations"][HAS_SECRET] = "true"
    if launch.code and code_size > MOST_IN_MAPS:
        made["metadata"]["annotations"][SENT_CODE] = json.dumps([launch.user, launch.code])
    return made


def _literal(text: str) -> str:
    """A text that Kubernetes hands on as it is: it would fill in `$(NAME)`, and read `$$` as `$`."""
    return text.replace("$", "$$")


def _volumes(launch: Launch, job: str) -> tuple[list[Object], list[Object]]:
    """The work folder, shared memory as large as the member may have, small files and storages."""
    shared: Object = {"medium": "Memory"}
    if launch.limit is not None and launch.limit.memory:
        shared["sizeLimit"] = str(launch.limit.memory)
    volumes: list[Object] = [{"name": "work", "emptyDir": {}}, {"name": "shm", "emptyDir": shared}]
    mounts: list[Object] = [
        {"name": "work", "mountPath": job_folder(job)},
        {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108  where shared memory is, in every container
    ]
    if launch.files:
        volumes.append({"name": "files", "configMap": {"name": pod_name(launch.attempt)}})
        for number, name in enumerate(sorted(launch.files)):
            mounts.append({"name": "files", "mountPath": f"{job_folder(job)}/{name}", "subPath": f"file-{number}"})
    for number, mount in enumerate(launch.mounts):
        volume = storages.native_volume(mount)
        if volume is None:
            continue
        volumes.append({"name": f"storage-{number}", **volume})
        mounts.append(_storage(f"storage-{number}", mount))
    return volumes, mounts


def _add_code(spec: Object, launch: Launch, size: int, image: str) -> None:
    """An init container of the job's own image unpacks the snapshot; it needs `sh` and `tar` there."""
    sources = [
        {"configMap": {"name": name, "items": [{"key": "part", "path": f"{number:02}"}]}}
        for number, name in enumerate(code_parts(launch.attempt, size))
    ]
    parts: Object = {"projected": {"sources": sources}} if sources else {"emptyDir": {}}
    spec["volumes"] += [{"name": "code", "emptyDir": {}}, {"name": "parts", **parts}]
    code = {"name": "code", "mountPath": CODE}
    spec["containers"][0]["volumeMounts"].append(code)
    spec["initContainers"] = [
        {
            "name": CODE_CONTAINER,
            "image": image,
            "command": ["/bin/sh", "-c", _UNPACK if sources else _WAIT],
            "volumeMounts": [code, {"name": "parts", "mountPath": _PARTS}],
            "resources": spec["containers"][0]["resources"],
            "securityContext": {"allowPrivilegeEscalation": False},
        }
    ]


def _working_dir(launch: Launch, job: str) -> str:
    if launch.code:
        return f"{CODE}/{launch.working_dir}".rstrip("/")
    return launch.working_dir or job_folder(job)


def _add_secrets(spec: Object, launch: Launch) -> None:
    name, container = pod_name(launch.attempt), spec["containers"][0]
    container["env"] += [
        {"name": variable, "valueFrom": {"secretKeyRef": {"name": name, "key": f"env-{number}"}}}
        for number, variable in enumerate(sorted(launch.secret_env))
    ]
    if launch.secret_files:
        items = [{"key": f"file-{number}", "path": path} for number, path in enumerate(sorted(launch.secret_files))]
        # Readable by all of the container: the user that its image has is not known here.
        spec["volumes"].append(
            {"name": "secrets", "secret": {"secretName": name, "items": items, "defaultMode": 0o444}}
        )
        container["volumeMounts"].append({"name": "secrets", "mountPath": SECRETS_FOLDER, "readOnly": True})
        container["env"].append({"name": SECRETS_VARIABLE, "value": SECRETS_FOLDER})


def _common(launch: Launch, settings: PodSettings) -> Object:
    found: Object = {}
    if settings.image_pull_secrets:
        found["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]
    if settings.service_account:
        found["serviceAccountName"] = settings.service_account
    found["tolerations"] = [dict(each) for each in settings.tolerations]
    found["tolerations"] += [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": settings.lost_node_seconds}
        for key in ("node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready")
    ]
    if priority := settings.priority_classes.get(launch.priority):
        found["priorityClassName"] = priority
    return found


def _storage(volume: str, mount: Mount) -> Object:
    made: Object = {"name": volume, "mountPath": mount.target, "readOnly": mount.read_only}
    return {**made, "subPath": mount.sub_path} if mount.sub_path else made


def _resources(launch: Launch, settings: PodSettings) -> Object:
    found: Object = {"requests": _amounts(launch.request)}
    if launch.limit is not None:
        found["limits"] = _amounts(launch.limit)
    # An extended resource needs a limit, equal to its request.
    scalars = {name: text for name, text in found["requests"].items() if name not in {"cpu", "memory"}}
    if scalars:
        found["limits"] = {**(found.get("limits") or {}), **scalars}
    if settings.ephemeral_storage and DISK not in scalars:
        for kind in ("requests", "limits"):
            found[kind] = {**(found.get(kind) or {}), DISK: settings.ephemeral_storage}
    return found


def _amounts(amount: Resources) -> dict[str, str]:
    found = {"cpu": f"{amount.cpu}m" if amount.cpu else "", "memory": str(amount.memory) if amount.memory else ""}
    found |= {name: str(value // 1000) for name, value in amount.scalars}
    return {name: text for name, text in found.items() if text}
