"""Real nodes on one machine: each is a first process in namespaces of its own, with containerd, kubelet and kube-proxy.

A node sees the machine's disk, but its own network, processes and mounts; ``/run`` and what it writes below ``/var/lib`` and
``/var/log`` are its own. Nothing is mounted, linked or set on the machine itself, and everything ends with the first process.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from pathlib import Path

from scripts.lib.cluster import api, cgroups, node_files, processes
from scripts.lib.cluster.control_plane import BRIDGE, READY_SECONDS, Runner
from scripts.lib.cluster.errors import ClusterError, eventually
from scripts.lib.cluster.inventory import HUB, PODS, Cluster
from scripts.lib.cluster.paths import PROGRAMS

#: the kernel settings that a kubelet insists on; it is shown files with these values instead of changing the machine
_KERNEL = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


class Node:
    """One node of a cluster."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.number = int(name.removeprefix("node"))
        self.folder = cluster.folder / "nodes" / name
        self.address = f"10.99.0.{10 + self.number}"
        self.pods = f"10.98.{self.number}.0/24"

    def part(self, program: str) -> str:
        return f"{self.name}/{program}"

    def first_process(self) -> int:
        """The id of the node's first process, as the machine sees it; 0 when the node is not up."""
        program = str((PROGRAMS / "pause").resolve())
        for process in processes.find(self.cluster.folder, self.part("init")):
            try:
                if str(Path(f"/proc/{process.pid}/exe").readlink()) == program:
                    return process.pid
            except OSError:
                continue
        return 0

    def entry(self) -> tuple[str, ...]:
        """The words before a command that is to run on the node."""
        pid = self.first_process()
        if not pid:
            raise ClusterError(f"{self.name} of {self.cluster.name} is not up", "scripts/cluster status")
        return ("nsenter", "-t", str(pid), "--net", "--uts", "--ipc", "--mount", "--pid", "--")

    def open(self) -> None:
        """Namespaces, network and mounts: an empty machine."""
        for folder in ("kubelet", "containerd", "cni", "kernel", "lib", "lib.work", "log", "log.work"):
            (self.folder / folder).mkdir(parents=True, exist_ok=True)
        cgroups.make(self.cluster, self.name)
        own = ("--net", "--uts", "--ipc", "--mount", "--propagation", "private", "--pid", "--mount-proc")
        command = ["unshare", *own, "--fork", "--kill-child=KILL", str(PROGRAMS / "pause")]
        processes.spawn(self.cluster.folder, self.part("init"), command)
        eventually(self.first_process, f"the namespaces of {self.name} are there", 10)
        self._plug_in()
        self._mount()

    def _plug_in(self) -> None:
        """A link from the hub's bridge, made in the hub, so that the machine's own network never sees it."""
        hub = Runner(self.cluster).hub_entry()
        link = f"port{self.number}"
        peer = ["peer", "name", "eth0", "netns", str(self.first_process())]
        for words in (
            ["link", "add", link, "type", "veth", *peer],
            ["link", "set", link, "master", BRIDGE],
            ["link", "set", link, "up"],
            ["route", "replace", self.pods, "via", self.address],
        ):
            _run([*hub, "ip", *words])
        others = [Node(self.cluster, name) for name in self.cluster.node_names if name != self.name]
        routes = [f"ip route add {other.pods} via {other.address}" for other in others]
        self._script(
            f"hostname {self.name}",
            "ip link set lo up",
            f"ip addr add {self.address}/24 dev eth0",
            "ip link set eth0 up",
            f"ip route add default via {HUB}",
            *routes,
            "echo 1 > /proc/sys/net/ipv4/ip_forward",
        )

    def _mount(self) -> None:
        """Shared propagation as pods expect it, and places of the node's own over those of the machine."""
        d = shlex.quote(str(self.folder))
        for setting, value in _KERNEL.items():
            (self.folder / "kernel" / setting.replace("/", ".")).write_text(f"{value}\n")
        shown = [f"mount --bind {d}/kernel/{setting.replace('/', '.')} /proc/sys/{setting}" for setting in _KERNEL]
        overlays = [
            f"mount -t overlay -o lowerdir=/var/{it},upperdir={d}/{it},workdir={d}/{it}.work overlay /var/{it}"
            for it in ("lib", "log")
        ]
        self._script(
            "mount --make-rshared /",
            "mount -t tmpfs -o mode=755 tmpfs /run",
            *overlays,
            "mkdir -p /run/lock /var/lib/kubelet /var/lib/containerd",
            f"mount --bind {d}/kubelet /var/lib/kubelet",
            f"mount --bind {d}/containerd /var/lib/containerd",
            *shown,
            "echo nameserver 127.0.0.1 > /run/resolv.conf",
            f"printf '127.0.0.1 localhost\\n{self.address} {self.name}\\n' > /run/hosts",
            "mount --bind /run/hosts /etc/hosts",
        )

    def start_containers(self, run: Runner) -> None:
        """containerd, ready to run pods."""
        config = node_files.containerd(self)
        run(self.part("containerd"), ["containerd", "--config", str(config)], self.entry())

        def ready() -> bool:
            processes.require_alive(self.cluster.folder, self.part("containerd"))
            return subprocess.run([*self.entry(), "ctr", "version"], capture_output=True, check=False).returncode == 0

        eventually(ready, f"containerd of {self.name} is ready", 60)

    def load(self, *archives: Path) -> None:
        """Give the node the images of docker or OCI archives; one after the other, for they may share layers."""
        for archive in archives:
            done = subprocess.run(
                [*self.entry(), "ctr", "-n", "k8s.io", "images", "import", str(archive)],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise ClusterError(f"{self.name} cannot load {archive}: {done.stderr.strip()}")

    def join(self, run: Runner) -> None:
        """The kubelet, which reports the node, and the proxy, which makes services reachable."""
        run(
            self.part("kubelet"),
            [
                *(str(PROGRAMS / "kubelet"), "--config", str(node_files.kubelet(self))),
                *("--kubeconfig", str(self.cluster.folder / "keys" / f"{self.name}.kubeconfig")),
                *("--node-ip", self.address, "--hostname-override", self.name),
                *("--node-labels", f"topology.kubernetes.io/zone=z{self.number}"),
            ],
            self.entry(),
        )
        run(
            self.part("proxy"),
            [
                *(str(PROGRAMS / "kube-proxy"), "--hostname-override", self.name, "--cluster-cidr", PODS),
                *("--kubeconfig", str(self.cluster.folder / "keys" / "proxy.kubeconfig")),
                *("--proxy-mode", "iptables", "--iptables-min-sync-period", "100ms"),
                *("--conntrack-max-per-core", "0"),  # what follows from these would be set on the whole machine
                *("--conntrack-tcp-timeout-established", "0", "--conntrack-tcp-timeout-close-wait", "0"),
            ],
            self.entry(),
        )

    def kill(self) -> None:
        """Let the node vanish as if its power were cut: nobody is told."""
        pid = self.first_process()
        if not pid:
            raise ClusterError(f"{self.name} of {self.cluster.name} is not up", "scripts/cluster status")
        os.kill(pid, signal.SIGKILL)
        eventually(
            lambda: not any(p.part.startswith(f"{self.name}/") for p in processes.find(self.cluster.folder)),
            f"{self.name} is gone",
            20,
        )

    def _script(self, *lines: str) -> None:
        _run([*self.entry(), "sh", "-ec", "\n".join(lines)])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"{shlex.join(command)}: {done.stderr.strip()}")


def wait_ready(cluster: Cluster, names: list[str] | None = None) -> None:
    """Until the nodes, all or those named, are ready and all their parts live."""
    wanted = cluster.node_names if names is None else names
    parts = [f"{node}/{program}" for node in wanted for program in ("containerd", "kubelet", "proxy")]

    def ready() -> bool:
        processes.require_alive(cluster.folder, *parts)
        known = api.ready_nodes(cluster)
        return all(known.get(node, False) for node in wanted)

    eventually(ready, f"{', '.join(wanted)} ready", READY_SECONDS, f"see {cluster.folder}/logs")
