"""Writes deploy/ from its sources: the CRDs from the code, the plain manifests from the charts. manifests.py [--check]

`--check` writes nothing and ends with 1 when a file is not what it would write.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

from paddleflow.podscheduler.definitions import definitions
from paddleflow.spec.paddlejob import crd

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.lib import chart

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
PLATFORM = DEPLOY / "helm" / "paddleflow"
CHART = PLATFORM / "charts" / "paddleflow-operator"
SCHEDULER = PLATFORM / "charts" / "paddleflow-scheduler"
VALUES_PAGE = DEPLOY.parent / "docs" / "reference" / "chart-values.md"
NAMESPACE = "paddle-system"
NOTE = "# Written by scripts/check --fix from {}; edit that.\n"


class _Plain(yaml.SafeDumper):
    """YAML without anchors: what is equal is written twice, as people would."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def dumped(*documents: dict[str, Any]) -> str:
    return yaml.dump_all(documents, Dumper=_Plain, sort_keys=False, width=120, allow_unicode=True)


def operator() -> list[dict[str, Any]]:
    """Everything that an installation consists of, with the chart's defaults."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    return [namespace, crd.definition(), *chart.render(CHART, NAMESPACE)]


def scheduler() -> list[dict[str, Any]]:
    """The same of the scheduler."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    return [namespace, *definitions(), *chart.render(SCHEDULER, NAMESPACE)]


def platform() -> list[dict[str, Any]]:
    """The same of the whole platform, with the scheduler as well."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    everything = chart.render(PLATFORM, NAMESPACE, {"scheduler": {"enabled": True}})
    return [namespace, crd.definition(), *definitions(), *everything]


def values_page() -> str:
    """A reference of the charts' values, from the comments in their values.yaml."""
    parts = [
        "# Values of the Helm charts\n",
        "Written from the comments in `deploy/helm/*/values.yaml` by `scripts/check --fix`; edit them there.",
        "[Deploy on Kubernetes](../guides/deploy.md) says how to use them.",
    ]
    for place in (PLATFORM, CHART, SCHEDULER):
        inside = {PLATFORM: "", CHART: "operator.", SCHEDULER: "scheduler."}[place]
        within = f"As part of the chart `paddleflow` each begins with `{inside}`.\n\n" if inside else ""
        parts.append(f"\n## {place.name}\n\n{within}| value | default | meaning |\n|---|---|---|")
        values = yaml.safe_load((place / "values.yaml").read_text("utf-8"))
        for path, meaning in commented((place / "values.yaml").read_text("utf-8")):
            found: Any = values
            for key in path.split("."):
                found = found[key]
            shown = "" if isinstance(found, dict) and found else f"`{json.dumps(found)}`"
            parts.append(f"| `{path}` | {shown} | {meaning} |")
    return "\n".join(parts) + "\n"


def commented(text: str) -> list[tuple[str, str]]:
    """Each value of a values.yaml down to the second level, by its path, with the comment above it."""
    found: list[tuple[str, str]] = []
    parent, comment = "", list[str]()
    for line in text.splitlines():
        bare = line.strip()
        depth = (len(line) - len(line.lstrip())) // 2
        if bare.startswith("#"):
            comment.append(bare.lstrip("# "))
        elif bare and depth < 2 and ":" in bare and not bare.startswith("-"):
            key = bare.partition(":")[0]
            parent = key if depth == 0 else parent
            found.append((key if depth == 0 else f"{parent}.{key}", " ".join(comment)))
            comment = []
        else:
            comment = []
    return found


def pages() -> dict[Path, str]:
    definition = NOTE.format("src/paddleflow/spec/paddlejob") + dumped(crd.definition())
    kinds = NOTE.format("src/paddleflow/podscheduler/definitions.py") + dumped(*definitions())
    return {
        SCHEDULER / "crds" / "queues.yaml": kinds,
        DEPLOY / "scheduler.yaml": NOTE.format("deploy/helm/paddleflow-scheduler") + dumped(*scheduler()),
        DEPLOY / "crds" / "paddlejobs.yaml": definition,
        CHART / "crds" / "paddlejobs.yaml": definition,
        DEPLOY / "paddleflow.yaml": NOTE.format("deploy/helm/paddleflow") + dumped(*platform()),
        VALUES_PAGE: values_page(),
        DEPLOY / "operator.yaml": NOTE.format("deploy/helm/paddleflow-operator") + dumped(*operator()),
    }


def main(check: bool) -> int:
    stale = [file for file, text in pages().items() if not file.exists() or file.read_text("utf-8") != text]
    if not check:
        for file in stale:
            file.write_text(pages()[file], "utf-8")
        return 0
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
