"""Pipelines written in Python.

    from paddleflow.pipeline import Artifact, ContainerStep, DAG, Parameter, Pipeline, step

Components say what they are (`components`, `jobs`, `functions`), `compiler` works out what references between them
need and writes the document that the platform reads, `pipeline` sends it. Faults are raised as
`PaddleFlowSDKException("PipelineDSLError", …)`.
"""

from paddleflow.pipeline.components import DAG, ContainerStep
from paddleflow.pipeline.functions import step
from paddleflow.pipeline.jobs import JobStep, Member
from paddleflow.pipeline.names import PF_LOOP_ARGUMENT, PF_RUN_ID, PF_STEP_NAME, PF_USER_NAME
from paddleflow.pipeline.options import (
    FAIL_CONTINUE,
    FAIL_FAST,
    CacheOptions,
    ExtraFS,
    FailureOptions,
    FSOptions,
    FSScope,
    MainFS,
    Retry,
)
from paddleflow.pipeline.pipeline import Pipeline
from paddleflow.pipeline.values import Artifact, Parameter

__all__ = [
    "DAG",
    "FAIL_CONTINUE",
    "FAIL_FAST",
    "PF_LOOP_ARGUMENT",
    "PF_RUN_ID",
    "PF_STEP_NAME",
    "PF_USER_NAME",
    "Artifact",
    "CacheOptions",
    "ContainerStep",
    "ExtraFS",
    "FSOptions",
    "FSScope",
    "FailureOptions",
    "JobStep",
    "MainFS",
    "Member",
    "Parameter",
    "Pipeline",
    "Retry",
    "step",
]
