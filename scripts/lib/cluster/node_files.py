"""The configuration files of a node's programs."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scripts.lib.cluster import cgroups, images
from scripts.lib.cluster.inventory import DNS

if TYPE_CHECKING:
    from scripts.lib.cluster.nodes import Node


def containerd(node: Node) -> Path:
    """containerd's own file, and the pod network it asks for: a bridge on the node, routed by the hub."""
    network: dict[str, Any] = {
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "pods0",
                "isGateway": True,
                "ipMasq": False,
                "hairpinMode": True,
                "ipam": {
                    "type": "host-local",
                    "dataDir": "/run/cni-addresses",
                    "ranges": [[{"subnet": node.pods}]],
                    "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }
    (node.folder / "cni" / "10-pods.conflist").write_text(json.dumps(network, indent=1))
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    lines = [
        "version = 2",
        'root = "/var/lib/containerd"',
        'state = "/run/containerd"',
        "oom_score = 0",
        "[grpc]",
        '  address = "/run/containerd/containerd.sock"',
        f"[{cri}]",
        f'  sandbox_image = "{images.PAUSE.name}"',
        "  restrict_oom_score_adj = true",  # root may lack the capability to lower it
        "  disable_apparmor = true",
        "  tolerate_missing_hugetlb_controller = true",
        f"[{cri}.cni]",
        '  bin_dir = "/usr/lib/cni"',
        f'  conf_dir = "{node.folder}/cni"',
        f"[{cri}.containerd]",
        f'  snapshotter = "{_snapshotter(node.folder)}"',
        '  default_runtime_name = "runc"',
        f"[{cri}.containerd.runtimes.runc]",
        '  runtime_type = "io.containerd.runc.v2"',
        f"[{cri}.containerd.runtimes.runc.options]",
        "  SystemdCgroup = false",
    ]
    file = node.folder / "containerd.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


def _snapshotter(folder: Path) -> str:
    """Layers as overlays; where the disk is itself an overlay, as in a container, as plain copies."""
    kind = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=True).stdout.strip()
    return "native" if kind == "overlayfs" else "overlayfs"


def kubelet(node: Node) -> Path:
    """The kubelet's file: JSON, which is YAML as well."""
    authority = str(node.cluster.folder / "keys" / "ca.crt")
    config: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroups.name_of(node.cluster, node.name)}",
        "enforceNodeAllocatable": ["pods"],
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": authority},
        },
        "authorization": {"mode": "Webhook"},
        "clusterDNS": [DNS],
        "clusterDomain": "cluster.local",
        "resolvConf": "/run/resolv.conf",
        "failSwapOn": False,
        "imageGCHighThresholdPercent": 100,  # an image that is thrown away cannot be pulled again
        "evictionHard": {"memory.available": "100Mi"},
        "localStorageCapacityIsolation": False,
        "volumePluginDir": "/run/flex",
        "syncFrequency": "10s",
        # A node is lost after the cluster's grace period: it must have spoken several times within it.
        "nodeStatusUpdateFrequency": f"{max(1, node.cluster.shape.grace // 5)}s",
        "nodeLeaseDurationSeconds": max(4, node.cluster.shape.grace // 2),
        "maxPods": 110,
    }
    file = node.folder / "kubelet.json"
    file.write_text(json.dumps(config, indent=1))
    return file
