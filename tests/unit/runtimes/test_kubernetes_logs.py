"""Logs of containers, over streams that break."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from paddleflow.base.ids import AttemptId
from paddleflow.errors import Unavailable
from paddleflow.kube.client import Client
from paddleflow.runtimes.kubernetes.collection import copy_log, task_of
from paddleflow.runtimes.log_folder import LogFolder

ATTEMPT = AttemptId("job-a.worker-0.1")


class Kubelet:
    """Gives a log in parts, and breaks off after so many."""

    def __init__(self, *parts: bytes) -> None:
        self.parts, self.most = parts, len(parts)

    async def follow_log(self, name: str, space: str, *, container: str) -> AsyncGenerator[bytes, None]:
        for part in self.parts[: self.most]:
            yield part
        if self.most < len(self.parts):
            raise Unavailable("the connection broke")


@pytest.mark.parametrize("most", [0, 1, 2, 3])
async def test_a_log_whose_stream_breaks_has_every_line_once(tmp_path: Path, most: int) -> None:
    kubelet, logs = Kubelet(b"one\n", b"two\nthr", b"ee\n", b"four\n"), LogFolder(tmp_path)
    client: Client = kubelet  # type: ignore[assignment]  # nothing else of a client is used
    kubelet.most = most
    for _ in range(2):
        with pytest.raises(Unavailable):
            await copy_log(client, logs, ATTEMPT, "pod", "space")
    kubelet.most = len(kubelet.parts)
    await copy_log(client, logs, ATTEMPT, "pod", "space")
    assert (await logs.read(task_of(ATTEMPT), 0, 100)).data == b"one\ntwo\nthree\nfour\n"
