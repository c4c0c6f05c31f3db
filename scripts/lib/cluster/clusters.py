"""Clusters as wholes: up, down, and what is up. What a broken-off `up` left behind is cleaned before anything else."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from scripts.lib.cluster import api, builds, certificates, cgroups, control_plane, debian, images, inventory, processes
from scripts.lib.cluster.addons import ADDONS
from scripts.lib.cluster.control_plane import Runner
from scripts.lib.cluster.errors import ClusterError, say
from scripts.lib.cluster.inventory import MOST_NODES, Cluster, Shape
from scripts.lib.cluster.nodes import Node
from scripts.lib.cluster.nodes import wait_ready as wait_nodes
from scripts.lib.cluster.paths import folder_of, locked


def up(name: str, shape: Shape) -> Cluster:
    """Bring a cluster up; one of the same shape that is up already is left as it is."""
    folder_of(name)  # refuses a name that cannot be
    _check(shape)
    builds.ALL.require(["kube", *(["node-images"] if shape.nodes else []), *shape.addons])
    with _lock(name):
        found = inventory.load(name)
        if found is not None and found.complete and _lives(found):
            if found.shape != shape:
                raise ClusterError(
                    f"{name} is up in another shape: {found.shape}", f"scripts/cluster down --name {name}"
                )
            say(f"{name} is up already")
            return found
        _clean(name)
        cluster = inventory.reserve(name, shape)
        try:
            cluster = _start(cluster)
        except BaseException:
            _end(name)  # the logs stay until the next call, for the person who wants to know
            raise
        cluster.save()
        return cluster


def _check(shape: Shape) -> None:
    """Refuse what cannot be, before anything is started."""
    if not 0 <= shape.nodes <= MOST_NODES:
        raise ClusterError(
            f"a cluster has 0 to {MOST_NODES} nodes, not {shape.nodes}", "simulated ones may be many: --with kwok"
        )
    unknown = [addon for addon in shape.addons if addon not in ADDONS]
    if unknown:
        raise ClusterError(f"a cluster cannot come with {', '.join(unknown)}", f"known: {', '.join(ADDONS)}")
    if "coredns" in shape.addons and not shape.nodes:
        raise ClusterError("coredns runs as a pod and needs a node", "scripts/cluster up --nodes 1 --with coredns")
    if shape.nodes:
        debian.require_root("a cluster with real nodes")


def _start(cluster: Cluster) -> Cluster:
    began = time.monotonic()

    def reached(what: str) -> None:
        say(f"{cluster.name}: {what} after {time.monotonic() - began:.1f} s")

    certificates.make(cluster)
    run = Runner(cluster)
    nodes = [Node(cluster, name) for name in cluster.node_names]
    if nodes:
        control_plane.open_hub(cluster)
    with ThreadPoolExecutor(MOST_NODES + len(ADDONS)) as pool:
        opened = [pool.submit(_open, node, run) for node in nodes]
        control_plane.start(cluster, run)
        reached("API ready")
        beside = [pool.submit(_add, name, cluster, run) for name in cluster.shape.addons if not ADDONS[name].on_nodes]
        for node, future in zip(nodes, opened, strict=True):
            future.result()
            node.join(run)
        control_plane.wait_accounts(cluster)
        if nodes:
            wait_nodes(cluster)
            reached(f"{len(nodes)} nodes ready")
        above = [pool.submit(_add, name, cluster, run) for name in cluster.shape.addons if ADDONS[name].on_nodes]
        for added in as_completed([*beside, *above]):
            reached(f"{added.result()} ready")
    return dataclasses.replace(run.recorded(), complete=True)


def _add(name: str, cluster: Cluster, run: Runner) -> str:
    ADDONS[name].start(cluster, run)
    return name


def _open(node: Node, run: Runner) -> None:
    """All of a node that does not need the API server."""
    node.open()
    node.start_containers(run)
    node.load(images.PAUSE.archive, images.BUSYBOX.archive)


def down(name: str) -> bool:
    """Take a cluster away, whole or not; whether there was anything."""
    with _lock(name):
        there = folder_of(name).exists() or bool(processes.find(folder_of(name)))
        _clean(name)
    _lock_file(name).unlink(missing_ok=True)
    return there


def _clean(name: str) -> None:
    _end(name)
    if folder_of(name).exists():
        shutil.rmtree(folder_of(name))


def _end(name: str) -> None:
    processes.end(folder_of(name))
    cgroups.remove(name)


def _lock(name: str) -> AbstractContextManager[None]:
    return locked(_lock_file(name), f"another call is at work on {name}; waiting for it")


def _lock_file(name: str) -> Path:
    return folder_of(name).with_suffix(".lock")


def _lives(cluster: Cluster) -> bool:
    return bool(processes.find(cluster.folder, "apiserver"))


def describe(cluster: Cluster) -> dict[str, Any]:
    """Everything about a cluster that a client or a person wants to know."""
    living = processes.find(cluster.folder)
    ready = api.ready_nodes(cluster) if cluster.complete else {}
    broken = sorted(set(cluster.commands) - {process.part for process in living})
    state = "starting or broken off" if not cluster.complete else "down" if not _lives(cluster) else "up"
    return {
        "name": cluster.name,
        "state": state,
        "nodes": {name: "ready" if ok else "not ready" for name, ok in sorted(ready.items())},
        "with": list(cluster.shape.addons),
        "kubeconfig": str(cluster.kubeconfig),
        "api": cluster.url("api"),
        "etcd": cluster.url("etcd"),
        "folder": str(cluster.folder),
        "parts": {process.part: process.pid for process in living},
        "broken": broken,
    }


def restart(name: str, part: str) -> None:
    """Kill one part, or a whole node, when it lives, and start it again as it was."""
    cluster = inventory.find(name)
    if part in cluster.node_names:
        node, run = Node(cluster, part), Runner(cluster)
        if node.first_process():
            node.kill()
        node.open()
        node.start_containers(run)
        node.join(run)
        run.recorded().save()
        wait_nodes(cluster, [part])
        return
    _require_part(cluster, part)
    processes.end(cluster.folder, part)
    processes.spawn(cluster.folder, part, cluster.commands[part])
    if part in ("etcd", "apiserver"):
        control_plane.wait_ready(cluster)


def kill(name: str, part: str) -> None:
    """Kill one part, or a whole node, without a word to anybody."""
    cluster = inventory.find(name)
    if part in cluster.node_names:
        Node(cluster, part).kill()
    else:
        _require_part(cluster, part)
        processes.end(cluster.folder, part)


def _require_part(cluster: Cluster, part: str) -> None:
    if part not in cluster.commands:
        known = ", ".join(sorted([*cluster.node_names, *cluster.commands]))
        raise ClusterError(f"{cluster.name} has no part {part!r}", f"its parts: {known}")


def load(name: str, wanted: Sequence[str]) -> None:
    """Give every node images: ours by their key, others by the path of their archive."""
    cluster = inventory.find(name)
    if not cluster.nodes:
        raise ClusterError(f"{name} has no real nodes that could hold images", "scripts/cluster up --nodes 1")
    archives = [images.ALL[word].archive if word in images.ALL else Path(word).resolve() for word in wanted]
    for word, archive in zip(wanted, archives, strict=True):
        if not archive.exists():
            raise ClusterError(
                f"there is no image {word!r} ({archive})",
                f"ours: {', '.join(images.ALL)}; scripts/cluster build python-image operator-image makes the larger ones",
            )
    with ThreadPoolExecutor(cluster.nodes) as pool:
        living = [node for node in (Node(cluster, each) for each in cluster.node_names) if node.first_process()]
        for done in [pool.submit(node.load, *archives) for node in living]:
            done.result()
