"""Runs one launch with mounts in a local runtime, as the account that calls it: ``python -m tests.unprivileged_runtime FOLDER``.

For tests that run as root and start this as another user. FOLDER is the account's own; it holds `source`, which is mounted at a
path that does not exist and that the account could not make. Prints the exit code, the message and the log as JSON.
With ``--rewrite`` namespaces count as forbidden.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from paddleflow.base.clock import SystemClock
from paddleflow.base.ids import AttemptId
from paddleflow.runtimes.local import launcher
from paddleflow.runtimes.local.keeper_connection import KEEPER_COMMAND
from paddleflow.runtimes.local.local_runtime import LocalRuntime
from paddleflow.runtimes.memory import task_of
from paddleflow.runtimes.runtime import Ended, Launch, Mount
from paddleflow.settings import LocalSettings

TARGET = "/opt/paddleflow-test/storage/mnt/fs-test"
#: As `link.KEEPER_COMMAND`, with a keeper on a machine that forbids namespaces.
FORBIDDEN = (
    *KEEPER_COMMAND[:-1],
    "import sys; sys.path.append(sys.argv[1]); from paddleflow.runtimes.local import keeper, launcher; "
    "launcher.can_fork_into = lambda users: False; keeper.main(sys.argv[2], int(sys.argv[3]))",
)


async def run(folder: Path, keeper: tuple[str, ...]) -> dict[str, object]:
    runtime = LocalRuntime(LocalSettings(), folder / "data", SystemClock(), keeper=keeper)
    await runtime.open()
    script = f"id -u; cat {TARGET}/there; echo made > {TARGET}/new; ls -d /opt/*; echo $SAID; pwd"
    launch = Launch(
        AttemptId("job-1.worker-0.1"),
        ("sh", "-c", script),
        {"PATH": "/usr/bin:/bin", "SAID": f"{TARGET}/there"},
        mounts=(Mount("fs-test", TARGET, str(folder / "source")),),
        working_dir=TARGET,
    )
    await runtime.start([launch])
    async for batch in runtime.observe():
        for seen in batch:
            if isinstance(seen, Ended):
                log = await runtime.logs.read(task_of(seen.attempt), 0, 10_000)
                await runtime.forget([seen.attempt])
                await runtime.close()
                return {"code": seen.exit_code, "message": seen.message, "log": log.data.decode()}
    raise AssertionError("a runtime observes as long as it is open")


def main() -> None:
    assert hasattr(launcher, "can_fork_into"), "the keeper that forbids namespaces replaces it"
    keeper = FORBIDDEN if "--rewrite" in sys.argv else KEEPER_COMMAND
    print(json.dumps(asyncio.run(run(Path(sys.argv[1]), keeper))))


if __name__ == "__main__":
    main()
