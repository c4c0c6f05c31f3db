"""All frameworks by name. To add one: write its module, add its value here, and a row in docs/guides/distributed-jobs.md."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from paddleflow.base.names import nearest
from paddleflow.errors import Invalid
from paddleflow.frameworks.framework import Framework
from paddleflow.frameworks.mpi import MPI
from paddleflow.frameworks.mxnet import MXNET
from paddleflow.frameworks.paddle import AITJ, PADDLE
from paddleflow.frameworks.pytorch import PYTORCH
from paddleflow.frameworks.ray import RAY
from paddleflow.frameworks.single import STANDALONE
from paddleflow.frameworks.spark import SPARK
from paddleflow.frameworks.tensorflow import TENSORFLOW
from paddleflow.frameworks.workflow import WORKFLOW

FRAMEWORKS: Mapping[str, Framework] = MappingProxyType(
    {framework.name: framework for framework in (STANDALONE, PADDLE, PYTORCH, TENSORFLOW, MPI, RAY, SPARK, MXNET, AITJ)}
)


def find(name: str) -> Framework:
    """The framework of this name; `Invalid` names the nearest one."""
    framework = WORKFLOW if name == WORKFLOW.name else FRAMEWORKS.get(name)  # nobody asks for that one by its name
    if framework is None:
        raise Invalid(f"framework[{name[:80]}] is not supported", hint=nearest(name, FRAMEWORKS))
    return framework
