"""`paddleflow.Client` for existing scripts: their method names, argument names and `(True, value)` results.

Thin: each method is one call of the typed client. Every refusal, unreachable server and wrong argument raises
`PaddleFlowSDKException(code, message, requestId)`. New scripts use `paddleflow.connect()`.
"""

from __future__ import annotations

from paddleflow.sdk.legacy.calls import PaddleFlowSDKException
from paddleflow.sdk.legacy.clusters import ClusterCalls
from paddleflow.sdk.legacy.jobs import JobCalls
from paddleflow.sdk.legacy.pipelines import PipelineCalls
from paddleflow.sdk.legacy.resources import Resources
from paddleflow.sdk.legacy.runs import RunCalls

__all__ = ["Client", "PaddleFlowSDKException"]


class Client(Resources, ClusterCalls, JobCalls, RunCalls, PipelineCalls):
    """`login` comes first. Unless a method says otherwise it returns `(True, payload)`."""
