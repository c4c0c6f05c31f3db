"""PaddleFlow: run AI jobs for teams, from a laptop to Kubernetes.

``paddleflow.connect()`` gives the typed client; ``paddleflow.Client`` keeps the calls of existing scripts. Both are
imported when first asked for, so that the command line starts at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "2.0.0b1"

if TYPE_CHECKING:
    from paddleflow.sdk.client import PaddleFlow, connect
    from paddleflow.sdk.legacy import Client, PaddleFlowSDKException

__all__ = ["Client", "PaddleFlow", "PaddleFlowSDKException", "__version__", "connect"]


def __getattr__(name: str) -> object:
    if name in {"connect", "PaddleFlow"}:
        from paddleflow.sdk import client

        return getattr(client, name)
    if name in {"Client", "PaddleFlowSDKException"}:
        from paddleflow.sdk import legacy

        return getattr(legacy, name)
    raise AttributeError(f"module 'paddleflow' has no attribute {name!r}")
