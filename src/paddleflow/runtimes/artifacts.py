"""The artifacts of a step, as a runtime knows them: from the variables `PF_INPUT_ARTIFACT_…` and `PF_OUTPUT_ARTIFACT_…` of its command. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from paddleflow.base.values import dataclass
from paddleflow.runtimes.runtime import RUN_VARIABLE

INPUTS, OUTPUTS = "PF_INPUT_ARTIFACT_", "PF_OUTPUT_ARTIFACT_"


@dataclass(frozen=True, slots=True)
class Artifacts:
    """What a step reads and makes on one storage: paths below its mount."""

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


def artifacts_of(env: Mapping[str, str], target: str) -> Artifacts:
    """The artifacts of a step that lie below a mount path."""
    if RUN_VARIABLE not in env:
        return Artifacts()

    def below(prefix: str) -> tuple[str, ...]:
        paths = [path for name, value in env.items() if name.startswith(prefix) for path in value.split(",")]
        found = [path[len(target) + 1 :] for path in paths if path.startswith(target.rstrip("/") + "/")]
        return tuple(dict.fromkeys(path for path in found if path and ".." not in path.split("/")))

    return Artifacts(below(INPUTS), below(OUTPUTS))
