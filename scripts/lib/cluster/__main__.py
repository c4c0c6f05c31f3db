"""The command line of ``scripts/cluster``: words in, tables or JSON out; data on stdout, everything else on stderr."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from scripts.lib.cluster import builds, clusters, inventory
from scripts.lib.cluster.addons import ADDONS, kubectl_variables
from scripts.lib.cluster.errors import ClusterError, say
from scripts.lib.cluster.inventory import MOST_NODES, Shape
from scripts.lib.cluster.nodes import Node
from scripts.lib.cluster.parts import PARTS
from scripts.lib.cluster.paths import PROGRAMS

DEFAULT = "default"
SIMULATED = 10  #: nodes, where kwok is asked for and no number is given


def parser() -> argparse.ArgumentParser:
    whole = argparse.ArgumentParser(prog="scripts/cluster", description="A real Kubernetes of the project's own.")
    commands = whole.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, what: str, named: bool = True) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=what, description=what)
        if named:
            made.add_argument("--name", default=DEFAULT, help="which cluster (default: %(default)s)")
        return made

    build = command("build", "Build parts once; a second call answers at once.", named=False)
    parts = "; ".join(f"{part.name}: {part.what}" for part in PARTS.values())
    build.add_argument("parts", nargs="*", default=["kube"], metavar="PART", help=f"default: kube. {parts}")
    build.add_argument("--check", action="store_true", help="build nothing; end with 1 when something is not built")

    up = command("up", "Bring a cluster up.")
    up.add_argument("--nodes", type=int, default=0, help=f"real nodes, 0 to {MOST_NODES}; any need root (default: 0)")
    up.add_argument("--with", dest="addons", default="", metavar="ADDON,…", help=f"of {', '.join(ADDONS)}")
    up.add_argument("--simulated", type=int, metavar="N", help=f"nodes of kwok (default: {SIMULATED} with kwok)")
    grace = "seconds until a silent node counts as lost (default: %(default)s)"
    up.add_argument("--grace", type=int, default=Shape().grace, help=grace)
    up.add_argument("--json", action="store_true", help="describe the cluster as status --json does")

    command("down", "Take a cluster away; nothing is left.")
    status = command("status", "What is up.", named=False)
    status.add_argument("--json", action="store_true")
    command("kubeconfig", "Print the path of the file for clients on this machine.")
    load = command("load", "Give all nodes images, by the name of one of ours or the path of an archive.")
    load.add_argument("images", nargs="+", metavar="IMAGE")
    for name, what in (
        ("kill", "Kill a node or another part, as a power cut would."),
        ("restart", "Kill a part and start it again."),
    ):
        command(name, what).add_argument("part", metavar="PART")
    for name, what in (("kubectl", "Run kubectl on a cluster."), ("on", "Run a command on a node: on NODE COMMAND …")):
        command(name, what).add_argument("words", nargs=argparse.REMAINDER)
    return whole


def split_words(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """What is ours and what is kubectl's or the node's: the latter may look like options."""
    if words and words[0] in ("kubectl", "on"):
        rest = list(words[1:])
        mine = [rest.pop(0), rest.pop(0)] if rest[:1] == ["--name"] and len(rest) > 1 else []
        if rest and rest[0] not in ("-h", "--help"):
            return [words[0], *mine], rest
    return list(words), []


def run(asked: argparse.Namespace, foreign: list[str]) -> int:
    match asked.command:
        case "build" if asked.check:
            builds.ALL.require(asked.parts)
        case "build":
            builds.ALL.build(asked.parts)
        case "up":
            cluster = clusters.up(asked.name, _shape(asked))
            if asked.json:
                print(json.dumps(clusters.describe(cluster)))
            else:
                say(f"for clients: export KUBECONFIG={cluster.kubeconfig}")
        case "down":
            if not clusters.down(asked.name):
                say(f"{asked.name} was not up")
        case "status":
            _status(asked.json)
        case "kubeconfig":
            print(inventory.find(asked.name).kubeconfig)
        case "load":
            clusters.load(asked.name, asked.images)
        case "kill":
            clusters.kill(asked.name, asked.part)
        case "restart":
            clusters.restart(asked.name, asked.part)
        case "kubectl":
            _kubectl(asked.name, foreign)
        case _:
            _on(asked.name, foreign)
    return 0


def _shape(asked: argparse.Namespace) -> Shape:
    """In the order in which the addons are brought up, whatever the order they were named in."""
    named = [word for word in asked.addons.split(",") if word]
    if asked.simulated is not None and "kwok" not in named:
        raise ClusterError(
            "simulated nodes are kwok's", f"scripts/cluster up --with kwok --simulated {asked.simulated}"
        )
    simulated = 0 if "kwok" not in named else SIMULATED if asked.simulated is None else asked.simulated
    known = [addon for addon in ADDONS if addon in named]
    return Shape(asked.nodes, (*known, *(word for word in named if word not in ADDONS)), simulated, asked.grace)


def _status(as_json: bool) -> None:
    found = [clusters.describe(each) for each in inventory.every()]
    if as_json:
        print(json.dumps(found))
        return
    rows: list[tuple[str, ...]] = [("NAME", "STATE", "NODES", "WITH", "API", "BROKEN")]
    for each in found:
        nodes: dict[str, Any] = each["nodes"]
        ready = f"{sum(state == 'ready' for state in nodes.values())}/{len(nodes)} ready"
        told = (each["name"], each["state"], ready, ",".join(each["with"]) or "-", each["api"])
        rows.append((*told, ",".join(each["broken"]) or "-"))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _kubectl(name: str, words: list[str]) -> NoReturn:
    cluster = inventory.find(name)
    os.execve(PROGRAMS / "kubectl", ["kubectl", *words], {**os.environ, **kubectl_variables(cluster)})


def _on(name: str, words: list[str]) -> NoReturn:
    if len(words) < 2:
        raise ClusterError("a node and a command are needed", "scripts/cluster on node1 ps ax")
    cluster = inventory.find(name)
    if words[0] not in cluster.node_names:
        raise ClusterError(f"{name} has no node {words[0]!r}", f"its nodes: {', '.join(cluster.node_names) or 'none'}")
    command = [*Node(cluster, words[0]).entry(), *words[1:]]
    os.execvp(command[0], command)


def main(words: Sequence[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # ends like an exception, so that `up` cleans behind itself
    mine, foreign = split_words(words)
    try:
        return run(parser().parse_args(mine), foreign)
    except ClusterError as error:
        say(f"error: {error}")
        if error.hint:
            say(f"hint: {error.hint}")
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
