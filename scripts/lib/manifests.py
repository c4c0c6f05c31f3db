"""Writes deploy/ from its sources: the CRDs from the models in spec, operator.yaml from the chart. manifests.py [--check]

`--check` writes nothing and ends with 1 when a file is not what it would write.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from paddleflow.spec.paddlejob import crd

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from scripts.lib import chart

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
CHART = DEPLOY / "helm" / "paddleflow-operator"
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


def pages() -> dict[Path, str]:
    definition = NOTE.format("src/paddleflow/spec/paddlejob") + dumped(crd.definition())
    return {
        DEPLOY / "crds" / "paddlejobs.yaml": definition,
        CHART / "crds" / "paddlejobs.yaml": definition,
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
