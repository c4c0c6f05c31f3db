"""PaddleFlow: run AI jobs for teams, from a laptop to Kubernetes.

    import paddleflow

    with paddleflow.connect() as pf:
        job = pf.jobs.submit(name="hello", command="echo hello")
        for line in job.logs(follow=True):
            print(line, end="")
        print(job.wait().status)

``connect()`` returns a `PaddleFlow`, the typed client; ``paddleflow.pipeline`` has the pipelines in Python; ``Client``
keeps the calls of scripts for PaddleFlow 1.x. Errors are those of ``paddleflow.errors``. The clients are imported when
they are first used, so that the command line starts quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "2.0.0b1"

if TYPE_CHECKING:
    from paddleflow.sdk.client import PaddleFlow, connect
    from paddleflow.sdk.legacy import Client, PaddleFlowSDKException

__all__ = ["Client", "PaddleFlow", "PaddleFlowSDKException", "__version__", "connect"]


def __dir__() -> list[str]:
    """For `help(paddleflow)` and completion, which see only what is imported."""
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    if name in {"connect", "PaddleFlow"}:
        from paddleflow.sdk import client

        return getattr(client, name)
    if name in {"Client", "PaddleFlowSDKException"}:
        from paddleflow.sdk import legacy

        return getattr(legacy, name)
    raise AttributeError(f"module 'paddleflow' has no attribute {name!r}")
